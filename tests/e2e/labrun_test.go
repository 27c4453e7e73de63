package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestLabRun: one command compiles a program, boots a guest on a GPU of its own, runs the program there, prints what it said and what
// the server saw, and ends with its status.
func TestLabRun(t *testing.T) {
	scale.ReleaseOnly(t)
	dir := t.TempDir()
	umbra, err := testserver.BuildUmbra(t.Context(), dir)
	require.NoError(t, err)
	source := filepath.Join(dir, "hello.c")
	require.NoError(t, os.WriteFile(source, []byte(`
#include <stdio.h>
#include <CL/cl.h>
int main(int argc, char **argv) {
	cl_platform_id platform;
	cl_device_id device;
	char name[256] = "";
	if (clGetPlatformIDs(1, &platform, 0) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, 0))
		return 1;
	clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, 0);
	printf("hello from %s\n", name);
	return 40 + argc;
}
`), 0o644))
	cmd := exec.CommandContext(t.Context(), umbra, "lab", "run", source, "--two", "arguments")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.Equal(t, "hello from NVC0\n", string(out), "%v %s", err, stderr.String())
	require.Equal(t, 43, cmd.ProcessState.ExitCode(), stderr.String())
	require.Regexp(t, `(?m)^umbra: [1-9][0-9]{3,} traps, [1-9][0-9]* interrupts, `, stderr.String())
	require.NotContains(t, stderr.String(), "rule ")

	require.NoError(t, os.WriteFile(source, []byte("#include <signal.h>\nint main() { return raise(SIGSEGV); }\n"), 0o644))
	out, err = exec.CommandContext(t.Context(), umbra, "lab", "run", source).CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	require.True(t, ok, "%v %s", err, out)
	require.Equal(t, 128+int(syscall.SIGSEGV), exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "umbra: a signal ended the program: segmentation fault")
}
