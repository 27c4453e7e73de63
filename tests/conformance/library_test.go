package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// neededFunctions reads the binding's table.
func neededFunctions(t *testing.T) (names []string) {
	src, err := os.ReadFile("../../vfiouser/libvfiouser/binding.c")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\trow\([^,]+, (vfu_\w+), `).FindAllStringSubmatch(string(src), -1) {
		names = append(names, m[1])
	}
	require.Greater(t, len(names), 10)
	return names
}

// envNew makes a run of the test program try the library it runs with.
const envNew = "UMBRA_TEST_NEW_TRANSPORT"

// TestLibraryAtStart: a program whose library is missing, lacks functions or has another
// name does not serve, and reports what it found and what it needs.
func TestLibraryAtStart(t *testing.T) {
	if os.Getenv(envNew) != "" {
		_, err := libvfiouser.New(newEverything(t), vfiouser.Options{})
		fmt.Printf("outcome: %v\n", err)
		return
	}
	builtLibrary(t)
	all := neededFunctions(t)
	// The library that the program was linked with, by the loader's name.
	const file = "libvfio-user.so.0"
	for _, c := range []struct {
		name   string
		has    []string // functions
		soname string
		says   []string
	}{
		{"the same functions", all, file, []string{"outcome: <nil>"}},
		{"two functions less", without(all, "vfu_get_private", "vfu_irq_trigger"), file, []string{"lacks vfu_get_private vfu_irq_trigger;", "/" + file, "make libvfio-user"}},
		{"the last function only", all[len(all)-1:], file, []string{"lacks vfu_create_ctx ", "/" + file}},
		{"another library of the name", []string{"something_else"}, file, []string{"lacks vfu_create_ctx ", "make libvfio-user"}},
		{"another ABI", all, "libvfio-user.so.7", []string{"/" + file + ", is libvfio-user.so.7, another ABI; libvfio-user.so.0 is needed"}},
		{"no library", nil, file, []string{"libvfio-user.so.0", "invalid ELF header"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			stub(t, filepath.Join(dir, file), c.soname, c.has)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLibraryAtStart$", "-test.v")
			cmd.Env = append(os.Environ(), envNew+"=1", "LD_LIBRARY_PATH="+dir)
			out, _ := cmd.CombinedOutput() // some fail, some say that New has
			for _, s := range c.says {
				require.Contains(t, string(out), s)
			}
		})
	}
}

func without(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(some, n) })
}

// stub makes a library of functions that do nothing; a file that is none for no
// functions.
func stub(t *testing.T, file, soname string, functions []string) {
	t.Helper()
	if functions == nil {
		require.NoError(t, os.WriteFile(file, []byte("this is no library, and is long enough to be read as one's header: 64 bytes"), 0o600))
		return
	}
	var src strings.Builder
	for _, n := range functions {
		fmt.Fprintf(&src, "void %s(void) {}\n", n)
	}
	cc, err := exec.CommandContext(t.Context(), "go", "env", "CC").Output()
	require.NoError(t, err)
	command := append(strings.Fields(string(cc)), "-shared", "-fPIC", "-Wl,-soname,"+soname, "-o", file, "-x", "c", "-")
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(src.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
