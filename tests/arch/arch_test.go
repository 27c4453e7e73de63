package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository reads the tree this package stands in.
func repository(t *testing.T) (tree fs.FS, files []string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	tree = os.DirFS(root)
	files, err = tracked(root, tree)
	require.NoError(t, err)
	require.Contains(t, files, "go.mod")
	return tree, files
}

func goFiles(t *testing.T) []sourceFile {
	t.Helper()
	tree, files := repository(t)
	var out []sourceFile
	for _, name := range files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		src, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		f, err := parse(name, src)
		require.NoError(t, err)
		out = append(out, f)
	}
	require.Greater(t, len(out), 100, "most of the repository was not read")
	return out
}

func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

func TestImports(t *testing.T)  { report(t, importFindings(goFiles(t))) }
func TestUnsafe(t *testing.T)   { report(t, unsafeFindings(goFiles(t))) }
func TestPackages(t *testing.T) { report(t, packageFindings(goFiles(t))) }

func TestText(t *testing.T) {
	tree, files := repository(t)
	for _, name := range files {
		content, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		report(t, textFindings(name, content))
	}
}

func TestLinks(t *testing.T) {
	tree, files := repository(t)
	exists := func(name string) bool { _, err := fs.Stat(tree, name); return err == nil }
	for _, name := range files {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		content, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		report(t, linkFindings(name, content, exists))
	}
}

var (
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// TestPagesAreTrue: what a page says proves something must exist.
func TestPagesAreTrue(t *testing.T) {
	tree, files := repository(t)
	names := func(re *regexp.Regexp, file string) (out []string) {
		content, err := fs.ReadFile(tree, file)
		require.NoError(t, err)
		for _, m := range re.FindAllSubmatch(content, -1) {
			out = append(out, string(m[1]))
		}
		return out
	}
	var tests []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, names(testFunc, name)...)
		}
	}
	targets := names(makeTarget, "Makefile")
	for _, name := range files {
		if strings.HasSuffix(name, ".md") {
			content, err := fs.ReadFile(tree, name)
			require.NoError(t, err)
			report(t, staleFindings(name, content, tests, files, targets))
		}
	}
}

// TestArchitecturePageNamesEveryRoom: a room that stands in the tree and not on
// the page is one a newcomer cannot place.
func TestArchitecturePageNamesEveryRoom(t *testing.T) {
	tree, _ := repository(t)
	page, err := fs.ReadFile(tree, "docs/ARCHITECTURE.md")
	require.NoError(t, err)
	present := make(map[room]bool)
	for _, f := range goFiles(t) {
		present[roomOf(f.dir())] = true
	}
	for r := range present {
		if !strings.Contains(string(page), "`"+string(r)+"`") {
			t.Errorf("docs/ARCHITECTURE.md does not say what %s is", r)
		}
	}
}

// TestEveryForbiddenPairHasAReason: who is told no is told why.
func TestEveryForbiddenPairHasAReason(t *testing.T) {
	for _, from := range rooms {
		for _, to := range rooms {
			if !mayImport(from, to) {
				require.NotEmpty(t, why(from, to), "%s must not import %s, and nothing says why", from, to)
			}
		}
	}
}

// TestNoCycles: what is allowed must not allow a cycle between rooms.
func TestNoCycles(t *testing.T) {
	var visit func(r room, path []room)
	visit = func(r room, path []room) {
		for _, p := range path {
			require.NotEqual(t, r, p, "cycle: %v", append(path, r))
		}
		for _, to := range allowed[r] {
			visit(to, append(path, r))
		}
	}
	for _, r := range rooms {
		visit(r, nil)
	}
}
