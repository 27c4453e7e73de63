// Package demo_test runs the demonstration as a person does. This is the test of several
// guests with kernels of their own on one card.
package demo_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestDemo checks the demonstration's exit status and which checks held. The
// release-only runs include the controls: with engines that do nothing, exactly the
// checks that depend on copies fail.
func TestDemo(t *testing.T) {
	labtest.Need(t)
	bin := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/tests/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		name         string
		release      bool
		args         []string
		held, failed []string
	}{
		{name: "two guests", args: []string{"--kernel", "6.1,7.2"}, held: []string{"boot a", "boot b", "probe a", "probe b",
			"copies a", "copies b", "card's count", "reboot", "GPU fault", "out of bounds", "OpenCL a", "OpenCL b", "registers", "power cut", "power-off", "server's end"}},
		{name: "three guests", release: true, args: []string{"--kernel", "6.1,6.12,7.2"}, held: []string{"boot a", "boot b", "boot c",
			"probe a", "probe b", "probe c", "copies a", "copies b", "copies c", "card's count", "reboot", "GPU fault", "out of bounds",
			"OpenCL a", "OpenCL b", "OpenCL c", "registers", "power cut", "power-off", "server's end"}},
		{name: "two GH100 and a GF100", release: true, args: []string{"--chip", "gh100"}, held: []string{"boot a", "boot b", "boot c",
			"probe a", "probe b", "probe c", "copies a", "copies b", "copies c", "card's count", "reboot", "GPU fault", "out of bounds",
			"Vulkan a", "Vulkan c", "registers", "power cut", "power-off", "server's end"}},
		{name: "two guests, engines disabled", release: true, args: []string{"--disable-engines"},
			held:   []string{"boot a", "boot b", "probe a", "probe b", "out of bounds", "registers", "power-off", "server's end"},
			failed: []string{"copies a", "copies b", "card's count", "reboot", "GPU fault", "OpenCL a", "OpenCL b", "power cut"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.release {
				scale.ReleaseOnly(t)
			}
			text, code := run(t, bin, c.args)
			t.Logf("%s", text)
			if _, err := exec.LookPath("gcc"); err != nil {
				program := regexp.MustCompile("^(OpenCL|Vulkan) ").MatchString
				c.held, c.failed = slices.DeleteFunc(c.held, program), slices.DeleteFunc(c.failed, program)
			}
			require.ElementsMatch(t, c.held, checks(text, "ok"))
			require.ElementsMatch(t, c.failed, checks(text, "FAILED"))
			require.Equal(t, len(c.failed) > 0, code != 0, "exit status %d", code)
			for _, m := range regexp.MustCompile(`(?m)^  ok      boot .*Linux (\S+)`).FindAllSubmatch(text, -1) {
				t.Attr("kernel", string(m[1]))
			}
		})
	}
}

// checks are the names of the checks with a verdict.
func checks(text []byte, verdict string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^  `+verdict+` +(.*?) +[0-9.]+ s`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

func run(t *testing.T, bin string, args []string) (text []byte, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its machines
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.Bytes(), cmd.ProcessState.ExitCode()
}
