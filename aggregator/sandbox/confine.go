// Package sandbox takes from a process what it does not need, before it works on what a guest made.
//
// It takes two steps. [Again] gives up privileges and files on one thread, and executes the program anew on it, so that all
// threads are bound, in a program with cgo too. [Forbid] then forbids all system calls but a few. The server, which keeps more,
// calls the parts of both itself. What a confined process starts is confined, too. The package has no state, locks or goroutines.
package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Self is the program that runs.
const Self = "/proc/self/exe"

// Again confines the thread to the files of files and of the program itself, and executes the program anew on it, with
// one more argument: what the kernel lacks. Descriptors from keep on are closed. It returns only if that fails.
func Again(files Files, limits map[int]uint64, keep uint) error {
	runtime.LockOSThread()
	for limit, n := range limits {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("setrlimit %d: %w", limit, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	libraries, err := Libraries()
	if err != nil {
		return err
	}
	files.Paths = append(files.Paths, Path{Self, Program}, Path{"/etc/ld.so.cache", Read})
	for _, name := range libraries {
		files.Paths = append(files.Paths, Path{name, Program})
	}
	missing, err := files.Restrict()
	if err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.CloseRange(keep, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	return fmt.Errorf("execve %s: %w", Self, unix.Exec(Self, append(slices.Clone(os.Args), missing), os.Environ()))
}

// Libraries lists the files that the program has mapped: itself and its libraries, which it needs to start again.
func Libraries() (names []string, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i >= 0 {
			names = append(names, strings.TrimSpace(line[i:]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// dropCapabilities takes all capabilities from the thread.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("PR_CAP_AMBIENT: %w", err)
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// Forbid is the second step. It checks the first, and installs the filter.
func Forbid(f *Filter) (missing string, listener int, err error) {
	var has [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]); err != nil {
		return "", -1, fmt.Errorf("capget: %w", err)
	}
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || bound != 1 || has != [2]unix.CapUserData{} {
		return "", -1, fmt.Errorf("the process has privileges: user %d, capabilities %v, PR_NO_NEW_PRIVS %d (%v)", os.Geteuid(), has, bound, err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return "", -1, fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	return f.Install()
}
