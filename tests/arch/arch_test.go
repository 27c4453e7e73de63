package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// files lists the repository's files with an extension, outside of folders whose names begin with a dot.
func files(t *testing.T, ext string) (out []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case d.IsDir() && name != "." && d.Name()[0] == '.':
			return fs.SkipDir
		case d.Type().IsRegular() && path.Ext(name) == ext:
			out = append(out, name)
		}
		return err
	}))
	return out
}

func read(name string, src []byte) (f source, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return f, err
	}
	f = source{path: name, doc: strings.TrimSpace(file.Doc.Text())}
	for _, spec := range file.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, imp)
	}
	return f, nil
}

func TestSources(t *testing.T) {
	var all []source
	for _, name := range files(t, ".go") {
		src, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		f, err := read(name, src)
		require.NoError(t, err)
		all = append(all, f)
		for _, finding := range slices.Concat(importFindings(f), unsafeFindings(f)) {
			t.Error(finding)
		}
	}
	require.Greater(t, len(all), 100, "most of the repository was not read")
	for _, finding := range docFindings(all) {
		t.Error(finding)
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

func TestLinks(t *testing.T) {
	links := 0
	for _, name := range files(t, ".md") {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for _, m := range markdownLink.FindAllStringSubmatch(string(content), -1) {
			if to := m[1]; !strings.Contains(to, ":") {
				links++
				_, err := os.Stat(filepath.Join(root, path.Dir(name), to))
				require.NoError(t, err, "%s links to %s", name, to)
			}
		}
	}
	require.Greater(t, links, 20, "most links were not seen")
}

// TestRoomsExist: a rule for a folder that is gone protects nothing.
func TestRoomsExist(t *testing.T) {
	for _, r := range rooms {
		require.DirExists(t, filepath.Join(root, r.name))
		for _, to := range r.imports {
			require.True(t, to == "*" || slices.ContainsFunc(rooms, func(r room) bool { return r.name == to }), "%s may import %s, which is no room", r.name, to)
		}
	}
}

// TestNoCycles: the rules must not allow a cycle between rooms.
func TestNoCycles(t *testing.T) {
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		require.NotContains(t, path, name, "cycle")
		for i := range rooms {
			if r := &rooms[i]; r.name == name {
				for _, to := range r.imports {
					visit(to, append(path, name))
				}
			}
		}
	}
	for _, r := range rooms {
		visit(r.name, nil)
	}
}

// TestCallsGoDown counts the calls between rooms of the aggregator, of functions and methods, and
// the lines outside of rooms.
func TestCallsGoDown(t *testing.T) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", `{{.ImportPath}};{{.Export}};{{.Dir}};{{join .GoFiles " "}}`, "./aggregator/...")
	cmd.Dir = root
	list, err := cmd.Output()
	require.NoError(t, err)
	fset, compiled, calls, size := token.NewFileSet(), make(map[string]string), make(map[string]int), make(map[string]int)
	imports := importer.ForCompiler(fset, "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(compiled[pkg]) })
	layer := func(room string) int {
		return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, room) })
	}
	check := func(pkg string, files ...*ast.File) (up []string) {
		uses := make(map[*ast.Ident]types.Object)
		_, err := (&types.Config{Importer: imports}).Check(pkg, fset, files, &types.Info{Uses: uses})
		require.NoError(t, err)
		from := roomOf(strings.TrimPrefix(pkg, Module+"/")).name
		for _, o := range uses {
			f, ok := o.(*types.Func)
			if !ok || f.Pkg() == nil || !strings.HasPrefix(f.Pkg().Path(), Module+"/aggregator") {
				continue
			}
			if to := roomOf(strings.TrimPrefix(f.Pkg().Path(), Module+"/")).name; to != from {
				calls[fmt.Sprintf("%-22s %s", from, to)]++
				if layer(from) < 0 || layer(from) >= layer(to) {
					up = append(up, fmt.Sprintf("%s calls %s, which is in no lower layer", from, f.FullName()))
				}
			}
		}
		return up
	}
	for line := range strings.Lines(string(list)) { // imports come first
		f := strings.Split(strings.TrimSpace(line), ";")
		compiled[f[0]] = f[1]
		if strings.HasPrefix(f[0], Module+"/aggregator") {
			var files []*ast.File
			for _, name := range strings.Fields(f[3]) {
				file, err := parser.ParseFile(fset, filepath.Join(f[2], name), nil, 0)
				require.NoError(t, err)
				files = append(files, file)
				size[f[0]] += fset.File(file.FileStart).LineCount()
			}
			require.Empty(t, check(f[0], files...))
		}
	}
	for _, c := range slices.Sorted(maps.Keys(calls)) {
		t.Logf("%-48s %3d", c, calls[c])
	}
	require.LessOrEqual(t, size[Module+"/aggregator"], 1500, "lines that tie the rooms together")
	planted, err := parser.ParseFile(fset, "x.go", `package gate; import "`+Module+`/aggregator/fifo"; func f(c *fifo.Channel) { c.Halt() }`, 0)
	require.NoError(t, err)
	require.Len(t, check(Module+"/aggregator/gate", planted), 1)
}

// TestPlanted checks that the rules find what they forbid.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		file, imp string
		want      string // part of the finding; "" for none
	}{
		{"vfiouser/x_plan9.go", Module + "/devmodel", "vfiouser must not import devmodel"},
		{"devmodel/x.go", Module + "/aggregator/card/soft", "bypass the checks"},
		{"aggregator/x.go", Module + "/aggregator/card", ""},
		{"vfiouser/x_test.go", Module + "/tests/testserver", "must not import tests"},
		{"vfiouser/x_test.go", Module + "/tests/scale", ""},
		{"devmodel/guest/x_test.go", Module + "/aggregator/card/soft", ""},
		{"cmdline/x.go", Module + "/mmio", "no room"},
		{"vfiouser/x.go", "golang.org/x/sys/unix", ""},
		{"vfiouser/x.go", "golang.org/x/systems", "may import only"},
		{"mmio/x_test.go", "github.com/stretchr/testify/require", ""},
		{"mmio/x.go", "github.com/stretchr/testify/require", "may import only"},
		{"vfiouser/sock.go", "unsafe", "imports unsafe"},
		{"vfiouser/sock_unsafe.go", "unsafe", ""},
		{"mmio/x.go", "C", "imports C"},
	} {
		t.Run(c.file+" imports "+c.imp, func(t *testing.T) {
			f, err := read(c.file, fmt.Appendf(nil, "//go:build never\n\npackage x\nimport _ %q\n", c.imp))
			require.NoError(t, err)
			got := strings.Join(slices.Concat(importFindings(f), unsafeFindings(f)), "\n")
			require.Equal(t, c.want == "", got == "", got)
			require.Contains(t, got, c.want)
		})
	}
	one, none := source{path: "mmio/x.go", doc: "Package x is."}, source{path: "mmio/y.go"}
	require.Empty(t, docFindings([]source{one, none}))
	require.Len(t, docFindings([]source{none}), 1)
	require.Len(t, docFindings([]source{one, one}), 1)
}
