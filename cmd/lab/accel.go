package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// Accel is the accelerator of a machine and why it is that one.
type Accel struct {
	Name   string // AccelKVM or AccelTCG
	Reason string // for people
}

// How long a guest may take under KVM before KVM counts as not working: to
// its kernel's first line, and to its agent. A working KVM needs less than one
// second and two; a nested or emulated one may hang instead of failing.
const (
	kvmFirstLine = 6 * time.Second
	kvmTrial     = 20 * time.Second
)

// verdict is the remembered outcome of booting a guest under KVM.
type verdict struct {
	Works  bool      `json:"works"`
	Reason string    `json:"reason"`
	When   time.Time `json:"when"`
}

// retryAfter is when a KVM that failed gets another chance: the host may have
// been too busy.
const retryAfter = 24 * time.Hour

// chooseAccel takes KVM if it boots this kernel, else TCG. That /dev/kvm opens
// proves nothing: some hosts offer a KVM that cannot run a stock kernel.
func chooseAccel(ctx context.Context, cfg Config, a Assets) (Accel, error) {
	if cfg.Accel != "" {
		return Accel{Name: cfg.Accel, Reason: "asked for"}, nil
	}
	if err := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK); err != nil {
		return Accel{Name: AccelTCG, Reason: "no usable /dev/kvm: " + err.Error()}, nil
	}
	dir, err := fetch.DefaultDir()
	if err != nil {
		return Accel{}, err
	}
	unlock, err := fetch.Lock(ctx, filepath.Join(dir, "accel.lock"), nil)
	if err != nil {
		return Accel{}, err
	}
	defer unlock()

	file := filepath.Join(dir, "accel.json")
	known := make(map[string]verdict)
	if data, err := os.ReadFile(file); err == nil {
		if json.Unmarshal(data, &known) != nil {
			clear(known) // an older or damaged file: try again
		}
	}
	key := fmt.Sprintf("host %s, QEMU %s, guest %s", hostRelease(), a.QEMU.Version, a.Kernel.Release)
	v, ok := known[key]
	if !ok || !v.Works && time.Since(v.When) > retryAfter {
		if cfg.Progress != nil {
			fmt.Fprintf(cfg.Progress, "trying KVM with Linux %s (the outcome is kept)\n", a.Kernel.Release)
		}
		v = tryKVM(ctx, a)
		if ctx.Err() != nil {
			return Accel{}, ctx.Err()
		}
		v.When = time.Now()
		known[key] = v
		if err := writeJSON(file, known); err != nil {
			return Accel{}, err
		}
	}
	if v.Works {
		return Accel{Name: AccelKVM, Reason: v.Reason}, nil
	}
	return Accel{Name: AccelTCG, Reason: v.Reason}, nil
}

func tryKVM(ctx context.Context, a Assets) verdict {
	began := time.Now()
	if err := bootKVM(ctx, a); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return verdict{Reason: "/dev/kvm is there but does not boot this kernel: " + first}
	}
	return verdict{Works: true, Reason: fmt.Sprintf("KVM booted this kernel in %.1f s", time.Since(began).Seconds())}
}

func bootKVM(ctx context.Context, a Assets) (err error) {
	cfg := Config{Accel: AccelKVM, BootTimeout: kvmTrial, Memory: 512, CPUs: 1}
	if a.Mesa != nil {
		cfg.Memory = MesaMemory
	}
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	vm, err := launch(ctx, cfg, a, Accel{Name: AccelKVM})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	first, cancel := context.WithTimeoutCause(ctx, kvmFirstLine, fmt.Errorf("no word from it in %v", kvmFirstLine))
	defer cancel()
	if _, _, err := vm.WaitConsole(first, "Linux version ", 0); err != nil {
		return err
	}
	return vm.ready(ctx, 1)
}

func hostRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
}

// writeJSON replaces a file at once.
func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
