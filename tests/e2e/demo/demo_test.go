// Package demo_test runs the demonstration as a person does, and looks at its exit
// code and its report.
package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/labtest"
)

// report is what the tests look at in the JSON report.
type report struct {
	OK     bool   `json:"ok"`
	Kernel string `json:"kernel"`
	Accel  string `json:"accel"`
	Checks []struct {
		Name     string   `json:"name"`
		OK       bool     `json:"ok"`
		NotRun   bool     `json:"not_run"`
		Problems []string `json:"problems"`
	} `json:"checks"`
	Copies []struct {
		Verified uint64            `json:"verified_bytes"`
		Moved    map[string]uint64 `json:"moved_bytes"`
	} `json:"copies"`
}

// needsEngines are the checks that no card can pass whose engines do nothing.
var needsEngines = []string{"M2MF", "copy engines", "semaphores", "fences", "moved buffers", "GPU fault"}

func TestDemo(t *testing.T) {
	labtest.Need(t)
	bin := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/tests/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)

	t.Run("holds", func(t *testing.T) {
		r, code := demo(t, bin)
		for _, c := range r.Checks {
			require.True(t, c.OK, "%s: %v", c.Name, c.Problems)
		}
		require.True(t, r.OK)
		require.Zero(t, code)
		for _, class := range []string{"9039", "90b5", "90b8"} {
			moved := uint64(0)
			for _, c := range r.Copies {
				moved += c.Moved[class]
			}
			require.NotZero(t, moved, class)
		}
	})
	t.Run("control", func(t *testing.T) {
		r, code := demo(t, bin, "--disable-engines")
		ok := map[string]bool{}
		for _, c := range r.Checks {
			require.False(t, c.NotRun, c.Name)
			ok[c.Name] = c.OK
		}
		require.True(t, ok["probe"], "the driver comes up without engines")
		for _, name := range needsEngines {
			held, made := ok[name]
			require.True(t, made, name)
			require.False(t, held, name)
		}
		for _, c := range r.Copies {
			require.Zero(t, c.Verified)
			for class, n := range c.Moved {
				require.Zero(t, n, class)
			}
		}
		require.False(t, r.OK)
		require.Equal(t, 1, code)
	})
}

// demo runs it and returns the report and the exit code.
func demo(t *testing.T, bin string, args ...string) (r report, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append(args, "--json")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends its machine
	cmd.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &r), "%s", stderr.Bytes())
	t.Attr("kernel", r.Kernel+" under "+r.Accel)
	if t.Failed() || len(r.Checks) == 0 {
		t.Logf("%s", stderr.Bytes())
	}
	return r, cmd.ProcessState.ExitCode()
}
