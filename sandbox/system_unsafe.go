package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockVersion returns the version of landlock that the kernel has.
func landlockVersion() (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// newRuleset makes a ruleset of landlock.
func newRuleset(attr *unix.LandlockRulesetAttr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// ruleNetPort is LANDLOCK_RULE_NET_PORT.
const ruleNetPort = 2

// portAttr is struct landlock_net_port_attr.
type portAttr struct{ access, port uint64 }

// addPath adds a rule of a file to a ruleset, addPort one of a TCP port.
func addPath(ruleset int, attr *unix.LandlockPathBeneathAttr) error {
	return addRule(ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(attr))
}

func addPort(ruleset int, attr *portAttr) error {
	return addRule(ruleset, ruleNetPort, unsafe.Pointer(attr))
}

func addRule(ruleset int, kind uintptr, attr unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), kind, uintptr(attr), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// install makes the kernel judge all system calls of all threads by a filter.
func install(f []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: unsafe.SliceData(f)}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}
