package sandbox

import (
	"fmt"
	"slices"
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

// install makes the kernel judge all system calls of all threads by a filter. It returns the listener, -1 of a filter that
// asks nobody: the kernel allows one for all filters of a process.
func install(f []unix.SockFilter) (listener int, err error) {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: unsafe.SliceData(f)}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC)
	asks := slices.ContainsFunc(f, func(i unix.SockFilter) bool { return i.K == unix.SECCOMP_RET_USER_NOTIF })
	if asks {
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, fmt.Errorf("seccomp: %w", errno)
	}
	if !asks && fd != 0 {
		return -1, fmt.Errorf("seccomp: thread %d has another filter", fd)
	}
	if !asks {
		return -1, nil
	}
	return int(fd), nil
}

// notification is a system call that waits for a judgement, and judgement the answer. See struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type judgement struct {
	id           uint64
	value        int64
	error, flags int32
}

func receive(listener int, n *notification) error {
	*n = notification{}
	return control(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n))
}

func judge(listener int, j *judgement) error {
	return control(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(j))
}

func control(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
