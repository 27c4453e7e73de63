// Package labtest starts lab machines for tests: they end with the test, and a
// test that failed shows what QEMU and the guest's console said last.
//
// Machine tests run wherever tests run. Setting UMBRA_NO_VM to a reason skips
// them, with that reason in the report; nothing else does.
package labtest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/umbra-gpu/umbra/cmd/lab"
)

// EnvNoVM holds the reason for running no virtual machines.
const EnvNoVM = "UMBRA_NO_VM"

// Need skips the test where machines are not wanted.
func Need(t testing.TB) {
	t.Helper()
	if why := os.Getenv(EnvNoVM); why != "" {
		t.Skipf("%s: %s", EnvNoVM, why)
	}
}

// Start starts a machine that ends with the test, and waits for its guest.
func Start(t testing.TB, cfg lab.Config) *lab.VM {
	t.Helper()
	Need(t)
	if cfg.Progress == nil {
		cfg.Progress = writer{t}
	}
	vm, err := lab.Start(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("starting a machine: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the machine, before it was closed:\n%s", vm.Diagnosis())
		}
		if err := vm.Close(); err != nil {
			t.Errorf("closing the machine: %v", err)
		}
	})
	return vm
}

// writer sends progress lines to the test's log.
type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
