package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"strconv"
	"strings"
)

// A sourceFile is what the checks need to know of one Go file.
type sourceFile struct {
	path    string // from the repository's root, with slashes
	pkg     string
	doc     string // comment of the package clause
	imports []string
}

func (f *sourceFile) dir() string  { return path.Dir(f.path) }
func (f *sourceFile) test() bool   { return strings.HasSuffix(f.path, "_test.go") }
func (f *sourceFile) name() string { return path.Base(f.path) }

// parse reads one Go file. It looks at no more than the check needs: comments
// and imports, whatever the build constraints.
func parse(name string, src []byte) (sourceFile, error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return sourceFile{}, err
	}
	out := sourceFile{path: name, pkg: f.Name.Name, doc: f.Doc.Text()}
	for _, spec := range f.Imports {
		out.imports = append(out.imports, importPath(spec))
	}
	return out, nil
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the compiler refuses such a file anyway
	}
	return p
}

// tracked lists the repository's files: what git tracks or would track, or, in
// a tree that git does not know, every file that is not hidden nor the note of a
// property test that failed.
func tracked(root string, tree fs.FS) ([]string, error) {
	c := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := c.Output(); err == nil {
		var files []string
		for _, f := range strings.Split(string(out), "\x00") {
			if f == "" {
				continue
			}
			if info, err := fs.Stat(tree, f); err == nil && info.Mode().IsRegular() {
				files = append(files, f)
			}
		}
		return files, nil
	}
	var files []string
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasSuffix(p, "testdata/rapid")) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			files = append(files, p)
		}
		return nil
	})
	return files, err
}
