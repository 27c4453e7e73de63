package fetch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A library of Debian's that lacks a version of symbols is replaced by this machine's.
func TestAddNeededVersions(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc: apt-get install gcc libc6-dev")
	}
	dir := t.TempDir()
	link := func(folder, name, source, versions string, args ...string) string {
		out, script := filepath.Join(dir, folder, name), filepath.Join(dir, "versions")
		require.NoError(t, os.MkdirAll(filepath.Dir(out), 0o755))
		require.NoError(t, os.WriteFile(script, []byte(versions), 0o644))
		cmd := exec.CommandContext(t.Context(), "gcc", append([]string{"-nostdlib", "-shared", "-fPIC", "-o", out, "-Wl,--version-script=" + script,
			"-Wl,-soname=" + name, "-x", "c", "-", "-x", "none"}, args...)...)
		cmd.Stdin = strings.NewReader(source)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return out
	}
	const old, both = "P_1 { global: f; };", "P_1 { global: f; }; P_2 { global: g; } P_1;"
	link("debian", "libpart.so.1", "void f(void) {}", old)
	newer := link("machine", "libpart.so.1", "void f(void) {} void g(void) {}", both)
	driver := link("prefix/lib", "libgallium-1.so", "void g(void); void h(void) { g(); }", "M { global: h; };", newer)

	p, c, debian := &prefix{dir: filepath.Join(dir, "prefix"), libs: "lib"}, &Cache{Dir: dir}, filepath.Join(dir, "debian")
	usual := machineLibraries
	t.Cleanup(func() { machineLibraries = usual })
	machineLibraries = nil
	require.ErrorContains(t, p.addNeeded(t.Context(), c, debian, []string{driver}), "libgallium-1.so: needs P_2 of libpart.so.1, which is neither in lib")
	machineLibraries = []string{filepath.Join(dir, "machine")}
	require.NoError(t, p.addNeeded(t.Context(), c, debian, []string{driver}))
	want, err := os.ReadFile(newer)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(debian, "libpart.so.1"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
