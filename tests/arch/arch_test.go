package arch

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
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
	f = source{path: name, doc: strings.TrimSpace(file.Doc.Text()), format: formats.FindString(string(src))}
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

// TestLayers: a room of the aggregator may import, and so call, only rooms of lower layers. Few lines tie
// the rooms together.
func TestLayers(t *testing.T) {
	layer := func(room string) int {
		return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, room) })
	}
	for _, r := range rooms {
		if !under(r.name, "aggregator") {
			continue
		}
		require.NotEqual(t, -1, layer(r.name), "%s is in no layer", r.name)
		for _, to := range r.imports {
			require.True(t, !under(to, "aggregator") || layer(r.name) < layer(to), "%s may import %s, which is in no lower layer", r.name, to)
		}
	}
	lines := 0
	for _, name := range files(t, ".go") {
		if path.Dir(name) == "aggregator" && !strings.HasSuffix(name, "_test.go") {
			src, err := os.ReadFile(filepath.Join(root, name))
			require.NoError(t, err)
			lines += strings.Count(string(src), "\n")
		}
	}
	require.LessOrEqual(t, lines, 1500, "lines that tie the rooms together")
}

// TestPlanted checks that the rules find what they forbid.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		file, imp string
		want      string // part of the finding; "" for none
	}{
		{"vfiouser/x_plan9.go", Module + "/devmodel", "vfiouser must not import devmodel"},
		{"devmodel/x.go", Module + "/mmio/gf100", "only faces and cards know a chip"},
		{"devmodel/gh100/gsp/x.go", Module + "/aggregator/card/soft", "bypass the checks"},
		{"aggregator/x.go", Module + "/aggregator/card", ""},
		{"aggregator/x.go", Module + "/mmio/gf100", "only faces and cards know a chip"},
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
	f, err := read("aggregator/x.go", []byte("package x\n\nvar f = shadowpt.Hopper\n"))
	require.NoError(t, err)
	require.Len(t, importFindings(f), 1)
	one, none := source{path: "mmio/x.go", doc: "Package x is."}, source{path: "mmio/y.go"}
	require.Empty(t, docFindings([]source{one, none}))
	require.Len(t, docFindings([]source{none}), 1)
	require.Len(t, docFindings([]source{one, one}), 1)
}
