package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Rule allows uses of a file.
type Rule struct {
	Name   string
	Access uint64
}

// Uses of a file, of those that landlock can forbid.
const (
	UseDevice  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	UseProgram = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
)

// landlockFS are the uses of files that a version of landlock knows, by version - 1.
var landlockFS = []uint64{
	unix.LANDLOCK_ACCESS_FS_REFER - 1, unix.LANDLOCK_ACCESS_FS_TRUNCATE - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1,
	unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1,
}

// landlock forbids the thread all files but those of the rules, and TCP. It returns what the kernel lacks.
func landlock(rules []Rule) (missing string, err error) {
	version, err := landlockVersion()
	if err != nil || version < 1 {
		return fmt.Sprintf("the kernel has no landlock (%v), which restricts its files", err), nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockFS[min(version, len(landlockFS))-1]}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	ruleset, err := newRuleset(&attr)
	if err != nil {
		return "", fmt.Errorf("landlock_create_ruleset: %w", err)
	}
	defer unix.Close(ruleset)
	for _, r := range rules {
		fd, err := unix.Open(r.Name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // whoever needs it says so
		} else if err != nil {
			return "", fmt.Errorf("open %s: %w", r.Name, err)
		}
		err = addRule(ruleset, &unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: r.Access & attr.Handled_access_fs})
		unix.Close(fd)
		if err != nil {
			return "", fmt.Errorf("landlock_add_rule %s: %w", r.Name, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return "", fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return "", nil
}
