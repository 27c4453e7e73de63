package arch

import (
	"fmt"
	"slices"
	"strings"
)

// importFindings reports imports that the tables in rooms.go do not allow.
func importFindings(files []sourceFile) []string {
	var out []string
	for i := range files {
		f := &files[i]
		from := roomOf(f.dir())
		for _, imp := range f.imports {
			if finding := checkImport(f, from, imp); finding != "" {
				out = append(out, finding)
			}
		}
	}
	return out
}

func checkImport(f *sourceFile, from room, imp string) string {
	if !strings.Contains(firstElement(imp), ".") {
		return "" // standard library
	}
	if local, ok := strings.CutPrefix(imp, Module+"/"); ok {
		to := roomOf(local)
		if f.test() && under(string(from), string(tests)) {
			from = tests // a room of its own for what is shipped of it; its tests are tests as any other
		}
		switch {
		case from == "" || to == "":
			return fmt.Sprintf("%s imports %s: %s", f.path, local, "there is no such room in the layout (tests/arch/rooms.go)")
		case mayImport(from, to):
			return ""
		}
		return fmt.Sprintf("%s: %s must not import %s: %s", f.path, from, to, why(from, to))
	}
	libs := libraries[from]
	if f.test() {
		libs = slices.Concat(libs, testLibraries)
	}
	if slices.ContainsFunc(libs, func(lib string) bool { return under(imp, lib) }) {
		return ""
	}
	return fmt.Sprintf("%s imports %s: %s", f.path, imp, whyLibraries)
}

func firstElement(imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	return first
}

// binding is the one package that may be made with a C compiler.
const binding = "vfiouser/libvfiouser"

// unsafeFindings reports unsafe outside of files that say so in their name.
func unsafeFindings(files []sourceFile) []string {
	var out []string
	for i := range files {
		f := &files[i]
		if roomOf(f.dir()) == tests || f.test() {
			continue
		}
		if slices.Contains(f.imports, "unsafe") && !strings.HasSuffix(f.name(), "_unsafe.go") {
			out = append(out, f.path+" imports unsafe: only files named *_unsafe.go may, so that a reviewer finds them all")
		}
		if slices.Contains(f.imports, "C") && f.dir() != binding {
			out = append(out, f.path+" imports C: the server is pure Go, but for the binding that a build tag asks for")
		}
	}
	return out
}

// vague names say nothing about what is inside.
var vague = []string{"util", "utils", "common", "misc", "helper", "helpers"}

// packageFindings reports packages without a doc comment, packages with more
// than one, and names that say nothing.
func packageFindings(files []sourceFile) []string {
	var out []string
	docs := make(map[string][]string) // by folder: the files with a doc comment
	var order []string
	for i := range files {
		f := &files[i]
		base := strings.TrimSuffix(strings.TrimSuffix(f.name(), ".go"), "_test")
		if slices.Contains(vague, base) || slices.Contains(vague, f.pkg) {
			out = append(out, fmt.Sprintf("%s (package %s): the name says nothing of what is inside", f.path, f.pkg))
		}
		if f.test() || strings.Contains(f.path, "/testdata/") {
			continue
		}
		dir := f.dir()
		if _, seen := docs[dir]; !seen {
			docs[dir] = nil
			order = append(order, dir)
		}
		if strings.TrimSpace(f.doc) != "" {
			docs[dir] = append(docs[dir], f.path)
		}
	}
	for _, dir := range order {
		switch d := docs[dir]; {
		case len(d) == 0:
			out = append(out, dir+": the package has no doc comment: say what it is, what it owns, its locks and their order")
		case len(d) > 1:
			out = append(out, fmt.Sprintf("%s: the package has %d doc comments, in %s: a reader expects one", dir, len(d), strings.Join(d, " and ")))
		}
	}
	return out
}
