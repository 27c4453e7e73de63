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
	Setup  string `json:"setup"`
	OK     bool   `json:"ok"`
	Kernel string `json:"kernel"` // in pass-through
	Accel  string `json:"accel"`
	Checks []struct {
		Name     string   `json:"name"`
		OK       bool     `json:"ok"`
		NotRun   bool     `json:"not_run"`
		Problems []string `json:"problems"`
	} `json:"checks"`
	Copies json.RawMessage   `json:"copies"`
	Guests []guest           `json:"guests"`
	Moved  map[string]uint64 `json:"moved_bytes"`
	Status string            `json:"status_text"`
	Regs   string            `json:"regs_text"`
	Log    string            `json:"log_line"`
}

// guest is one of several.
type guest struct {
	Name     string            `json:"name"`
	Kernel   string            `json:"kernel"`
	Copies   uint64            `json:"copies"`
	Verified uint64            `json:"verified_bytes"`
	Traps    uint64            `json:"traps"`
	Broken   map[string]uint64 `json:"rules_broken"`
}

// copies are those of one check in pass-through.
type copies struct {
	Verified uint64            `json:"verified_bytes"`
	Moved    map[string]uint64 `json:"moved_bytes"`
}

// held lists the checks, and whether they held. None may have been left out.
func (r *report) held(t *testing.T) map[string]bool {
	t.Helper()
	ok := map[string]bool{}
	for _, c := range r.Checks {
		require.False(t, c.NotRun, c.Name)
		ok[c.Name] = c.OK
	}
	return ok
}

// requireAll wants every check to have held.
func (r *report) requireAll(t *testing.T, code int) {
	t.Helper()
	for _, c := range r.Checks {
		require.True(t, c.OK, "%s: %v", c.Name, c.Problems)
	}
	require.True(t, r.OK)
	require.Zero(t, code)
}

// requireFailed wants these checks to have failed, those to have held, and so the
// whole to have failed.
func (r *report) requireFailed(t *testing.T, code int, failed, held []string) {
	t.Helper()
	ok := r.held(t)
	for _, name := range failed {
		good, made := ok[name]
		require.True(t, made, name)
		require.False(t, good, name)
	}
	for _, name := range held {
		require.True(t, ok[name], name)
	}
	require.Len(t, ok, len(failed)+len(held), "every check is one or the other")
	require.False(t, r.OK)
	require.Equal(t, 1, code)
}

func build(t *testing.T) string {
	t.Helper()
	labtest.Need(t)
	bin := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/tests/demo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// classes move bytes.
var classes = []string{"9039", "90b5", "90b8"}

// TestDemo: several guests on one card, shown by the command itself.
func TestDemo(t *testing.T) {
	bin := build(t)
	t.Run("holds", func(t *testing.T) {
		r, code := demo(t, bin)
		r.requireAll(t, code)
		require.Equal(t, "virtual", r.Setup)
		require.Len(t, r.Guests, 2)
		require.NotEqual(t, r.Guests[0].Kernel, r.Guests[1].Kernel)
		for _, g := range r.Guests {
			require.NotZero(t, g.Verified, g.Name)
			require.NotZero(t, g.Traps, g.Name)
			require.Contains(t, r.Status, "\n  "+g.Name+" ")
		}
		for _, class := range classes {
			require.NotZero(t, r.Moved[class], class)
		}
		require.Equal(t, uint64(1), r.Guests[0].Broken["bad_window"])
		require.Zero(t, r.Guests[1].Broken["bad_window"])
		require.Contains(t, r.Log, "gpu=a rule=bad_window")
		require.Contains(t, r.Regs, "NV_PTIMER_TIME_0")
	})
	t.Run("control", func(t *testing.T) {
		r, code := demo(t, bin, "--disable-engines")
		r.requireFailed(t, code,
			[]string{"copies a", "copies b", "card's count", "reboot", "GPU fault", "power cut"},
			[]string{"serve", "boot a", "boot b", "probe a", "probe b", "out of bounds", "status", "registers", "poweroff", "server's end"})
		for _, g := range r.Guests {
			require.Zero(t, g.Verified, g.Name)
			require.Zero(t, g.Copies, g.Name)
		}
		for class, n := range r.Moved {
			require.Zero(t, n, class)
		}
	})
}

// TestPassThrough: one guest with a whole card.
func TestPassThrough(t *testing.T) {
	bin := build(t)
	list := func(t *testing.T, r *report) (all []copies) {
		require.Equal(t, "pass-through", r.Setup)
		require.NoError(t, json.Unmarshal(r.Copies, &all))
		require.NotEmpty(t, all)
		return all
	}
	t.Run("holds", func(t *testing.T) {
		r, code := demo(t, bin, "--pass-through")
		r.requireAll(t, code)
		for _, class := range classes {
			moved := uint64(0)
			for _, c := range list(t, &r) {
				moved += c.Moved[class]
			}
			require.NotZero(t, moved, class)
		}
	})
	t.Run("control", func(t *testing.T) {
		r, code := demo(t, bin, "--pass-through", "--disable-engines")
		r.requireFailed(t, code,
			[]string{"M2MF", "copy engines", "semaphores", "fences", "moved buffers", "GPU fault"},
			[]string{"probe", "classes", "temperature", "clean log", "interrupts", "poweroff", "registers"})
		for _, c := range list(t, &r) {
			require.Zero(t, c.Verified)
			for class, n := range c.Moved {
				require.Zero(t, n, class)
			}
		}
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
	kernels := []string{r.Kernel}
	if len(r.Guests) > 0 {
		kernels = nil
		for _, g := range r.Guests {
			kernels = append(kernels, g.Kernel)
		}
	}
	for _, k := range kernels {
		t.Attr("kernel", k+" under "+r.Accel)
	}
	if t.Failed() || len(r.Checks) == 0 {
		t.Logf("%s", stderr.Bytes())
	}
	return r, cmd.ProcessState.ExitCode()
}
