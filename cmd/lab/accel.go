package lab

import (
	"context"
	"crypto/sha256"
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
	Name   string `json:"name"`   // AccelKVM or AccelTCG
	Reason string `json:"reason"` // for people
}

// How long a guest may take under KVM before KVM counts as not working: to
// its kernel's first line, and to its agent. A working KVM needs less than one
// second and two; a nested or emulated one may hang instead of failing.
const (
	kvmFirstLine = 6 * time.Second
	kvmTrial     = 20 * time.Second
)

// retryAfter is when a KVM that failed gets another chance: the host may have
// been too busy.
const retryAfter = 24 * time.Hour

// chooseAccel takes KVM if it boots this kernel, else TCG. That /dev/kvm opens
// proves nothing: some hosts offer a KVM that cannot run a stock kernel.
func chooseAccel(ctx context.Context, cfg Config, a Assets) (Accel, error) {
	if cfg.Accel != "" {
		return Accel{cfg.Accel, "asked for"}, nil
	}
	if err := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK); err != nil {
		return Accel{AccelTCG, "no usable /dev/kvm: " + err.Error()}, nil
	}
	dir, err := fetch.DefaultDir()
	if err != nil {
		return Accel{}, err
	}
	dir = filepath.Join(dir, "accel")
	unlock, err := fetch.Lock(ctx, filepath.Join(dir, "lock"), nil)
	if err != nil {
		return Accel{}, err
	}
	defer unlock()
	file := filepath.Join(dir, outcomeOf(a))
	if known := remembered(file); known.Name != "" {
		return known, nil
	}
	if cfg.Progress != nil {
		fmt.Fprintf(cfg.Progress, "trying KVM with Linux %s (the outcome is kept)\n", a.Kernel.Release)
	}
	accel := tryKVM(ctx, a)
	if ctx.Err() != nil {
		return Accel{}, ctx.Err()
	}
	data, err := json.Marshal(accel)
	return accel, errors.Join(err, os.WriteFile(file, data, 0o644))
}

// outcomeOf names the file that remembers the outcome of booting a guest under KVM.
func outcomeOf(a Assets) string {
	var host unix.Utsname
	_ = unix.Uname(&host) // without it, all hosts are one
	key := fmt.Sprintln(unix.ByteSliceToString(host.Release[:]), unix.ByteSliceToString(host.Version[:]), a.QEMU.Version, a.Kernel.Release)
	return fmt.Sprintf("%x.json", sha256.Sum256([]byte(key)))
}

// remembered reads an outcome. There is none if KVM failed long ago, or the file is damaged.
func remembered(file string) (a Accel) {
	data, err := os.ReadFile(file)
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || json.Unmarshal(data, &a) != nil || a.Name == AccelTCG && time.Since(info.ModTime()) > retryAfter {
		return Accel{}
	}
	return a
}

func tryKVM(ctx context.Context, a Assets) Accel {
	began := time.Now()
	if err := bootKVM(ctx, a); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return Accel{AccelTCG, "/dev/kvm is there but does not boot this kernel: " + first}
	}
	return Accel{AccelKVM, fmt.Sprintf("KVM booted this kernel in %.1f s", time.Since(began).Seconds())}
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
