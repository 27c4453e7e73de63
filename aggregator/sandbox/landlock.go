package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Path allows uses of a file, or of a folder and all below it.
type Path struct {
	Name string
	Use  uint64
}

// Uses of a file, of those that landlock can forbid.
const (
	Read    = unix.LANDLOCK_ACCESS_FS_READ_FILE
	Device  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	Program = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// Sockets is for a folder: sockets may be made there, and files be removed.
	Sockets = unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
)

// Files is what a thread may still reach, and whatever it starts or executes.
type Files struct {
	Paths []Path
	Ports []uint16 // TCP ports where it may listen
	// AbstractSockets allows connections to sockets in the abstract namespace that others made.
	AbstractSockets bool
}

// landlockFS are the uses of files that a version of landlock knows, by version - 1.
var landlockFS = []uint64{
	unix.LANDLOCK_ACCESS_FS_REFER - 1, unix.LANDLOCK_ACCESS_FS_TRUNCATE - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1,
	unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1,
}

// Restrict forbids this thread, which PR_SET_NO_NEW_PRIVS must bind, all other files and TCP ports. It returns what the kernel
// lacks. Other threads stay as they are: execute the program anew on this one.
func (f *Files) Restrict() (missing string, err error) {
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
		if f.AbstractSockets {
			attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL
		}
	}
	ruleset, err := newRuleset(&attr)
	if err != nil {
		return "", fmt.Errorf("landlock_create_ruleset: %w", err)
	}
	defer unix.Close(ruleset)
	for _, r := range f.Paths {
		fd, err := unix.Open(r.Name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // whoever needs it says so
		} else if err != nil {
			return "", fmt.Errorf("open %s: %w", r.Name, err)
		}
		use := r.Use & attr.Handled_access_fs
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			use &^= Sockets
		}
		if err == nil && use != 0 {
			err = addPath(ruleset, &unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: use})
		}
		unix.Close(fd)
		if err != nil {
			return "", fmt.Errorf("landlock_add_rule %s: %w", r.Name, err)
		}
	}
	if version >= 4 {
		for _, port := range f.Ports {
			if err := addPort(ruleset, &portAttr{unix.LANDLOCK_ACCESS_NET_BIND_TCP, uint64(port)}); err != nil {
				return "", fmt.Errorf("landlock_add_rule of port %d: %w", port, err)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return "", fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return "", nil
}
