package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

// sourceTree makes a folder that looks like the project to the hashes.
func sourceTree(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                         "module " + Module + "\n",
		"tests/guests/go.mod":            "module x\n",
		"tests/guests/go.sum":            "",
		"tests/guests/cmd/agent/main.go": "package main\n",
		"tests/lab/proto/proto.go":       "package proto\n",
	} {
		p := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
	}
	return dir
}

func hashes(t *testing.T, b *Builder, k fetch.Kernel) (h [3]string) {
	parts, err := b.parts(b.Source, k)
	require.NoError(t, err)
	for i, p := range parts {
		h[i] = p.hash
	}
	return h
}

// A change builds again what it touches and nothing else.
func TestPartsFollowTheirSources(t *testing.T) {
	src := sourceTree(t)
	b := &Builder{Dir: t.TempDir(), Source: src}
	k := fetch.Kernel{Release: "1", Modules: t.TempDir()}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	was := hashes(t, b, k)
	check := func(what string, init, agent, modules bool) {
		t.Helper()
		now := hashes(t, b, k)
		require.Equal(t, init, was[0] != now[0], "init after %s", what)
		require.Equal(t, agent, was[1] != now[1], "agent after %s", what)
		require.Equal(t, modules, was[2] != now[2], "modules after %s", what)
		was = now
	}
	check("nothing", false, false, false)
	write(filepath.Join(src, "tests/guests/cmd/agent/main.go"), "package main // new\n")
	check("the agent's source", false, true, false)
	write(filepath.Join(src, "tests/lab/proto/proto.go"), "package proto // new\n")
	check("the protocol", false, true, false)
	write(filepath.Join(src, "tests/guests/cmd/agent/main_test.go"), "package main\n")
	check("a test", false, false, false)
	write(filepath.Join(src, "tests/guests/go.sum"), "u-root v2\n")
	check("another u-root", true, true, false)
	write(filepath.Join(k.Modules, "modules.dep"), "a.ko:\n")
	check("a module", false, false, true)
	b.Agent = "./cmd/other"
	check("another agent", false, true, false)
	k.Modules = ""
	require.Empty(t, hashes(t, b, k)[2], "no modules, no part")
}

func TestConcatAligns(t *testing.T) {
	dir := t.TempDir()
	a, b, out := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(a, []byte("12345"), 0o644))
	require.NoError(t, os.WriteFile(b, []byte("abcd"), 0o644))
	require.NoError(t, concat(out, a, b))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "12345\x00\x00\x00abcd", string(data))
}

func TestSource(t *testing.T) {
	src := sourceTree(t)
	t.Chdir(filepath.Join(src, "tests", "guests")) // below a module of its own
	got, err := (&Builder{}).source()
	require.NoError(t, err)
	require.Equal(t, src, got)
	t.Chdir(t.TempDir())
	got, err = (&Builder{}).source()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(got, "tests", "lab", "image", "image.go"), "the tree this test was built from")
}

func TestBuildSaysWhatFailed(t *testing.T) {
	b := &Builder{Dir: t.TempDir(), Source: sourceTree(t)}
	_, err := b.Build(t.Context(), fetch.Kernel{Release: "1"})
	require.ErrorContains(t, err, "go tool u-root")
	left, err := filepath.Glob(filepath.Join(b.Dir, "build-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
