package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// socketFD is the file of the connection to the server.
const socketFD = 3

// maxFiles is how many files the process may have: its own, and one for each object of VRAM.
const maxFiles = 1024

// System is the driver that a process uses, and the system calls that it needs besides those of the process.
type System struct {
	nvrm.System
	Calls []uint32
}

// Main is the process. The arguments are those that follow Config.Command. It returns when the server is gone.
//
// The process gives up in two steps what it does not need. First its main thread does, and executes the program anew, so
// that all threads are bound, in a program with cgo too. Then it forbids all system calls but a few.
func Main(sys System, args []string) error {
	const withMissing = 3 // arguments of the second step
	if len(args) < withMissing-1 {
		return errors.New("this command is for the server, which starts it")
	}
	minor, err := strconv.Atoi(args[0])
	if err == nil && len(args) < withMissing {
		err = again(minor)
	}
	missing := slices.Clone(args[2:])
	c, connErr := newConn(os.NewFile(socketFD, "server"))
	if connErr != nil {
		return errors.Join(err, connErr)
	}
	if err == nil {
		var more string
		if more, err = forbid(sys.Calls); more != "" {
			missing = append(missing, more)
		}
	}
	p := &process{conn: c}
	for _, m := range missing {
		if m != "" {
			p.send(reply{answer: answer{Kind: logged}, text: []byte("the process of the card's channels is less confined: " + m)})
		}
	}
	serveErr := p.serve(func() (*nvrm.Client, error) {
		if err != nil {
			return nil, err
		}
		return nvrm.Open(sys, minor, args[1] == "true")
	})
	return errors.Join(err, serveErr)
}

// again confines the thread and executes the program anew on it. It returns only if that fails.
func again(minor int) error {
	runtime.LockOSThread()
	if os.Getuid() == 0 || os.Geteuid() == 0 {
		return errors.New("the process of the card's channels must not run as root, whose channels may copy from physical addresses: set card.user")
	}
	for limit, n := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("setrlimit %d: %w", limit, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	const self = "/proc/self/exe"
	libraries, err := mapped()
	if err != nil {
		return err
	}
	rules := []pathRule{
		{"/dev/nvidiactl", useDevice}, {fmt.Sprintf("/dev/nvidia%d", minor), useDevice}, {nvrm.VersionFile, unix.LANDLOCK_ACCESS_FS_READ_FILE},
		{self, useProgram}, {"/etc/ld.so.cache", unix.LANDLOCK_ACCESS_FS_READ_FILE},
	}
	for _, name := range libraries {
		rules = append(rules, pathRule{name, useProgram})
	}
	missing, err := landlock(rules)
	if err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.CloseRange(socketFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	return fmt.Errorf("execve %s: %w", self, unix.Exec(self, append(slices.Clone(os.Args), missing), nil))
}

// mapped lists the files that the program has mapped: itself and its libraries, which it needs to start again.
func mapped() (names []string, err error) {
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

// pathRule allows uses of a file.
type pathRule struct {
	name   string
	access uint64
}

// Uses of a file, of those that landlock can forbid.
const (
	useDevice  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	useProgram = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
)

// landlockFS are the uses of files that a version of landlock knows, by version - 1.
var landlockFS = []uint64{
	unix.LANDLOCK_ACCESS_FS_REFER - 1, unix.LANDLOCK_ACCESS_FS_TRUNCATE - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV - 1,
	unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1,
}

// landlock forbids the thread all files but those of the rules, and TCP. It returns what the kernel lacks.
func landlock(rules []pathRule) (missing string, err error) {
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
		fd, err := unix.Open(r.name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // whoever needs it says so
		} else if err != nil {
			return "", fmt.Errorf("open %s: %w", r.name, err)
		}
		err = addRule(ruleset, &unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: r.access & attr.Handled_access_fs})
		unix.Close(fd)
		if err != nil {
			return "", fmt.Errorf("landlock_add_rule %s: %w", r.name, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return "", fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return "", nil
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

// forbid is the second step. It checks the first.
func forbid(calls []uint32) (missing string, err error) {
	var has [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]); err != nil {
		return "", fmt.Errorf("capget: %w", err)
	}
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || bound != 1 || has != [2]unix.CapUserData{} || os.Geteuid() == 0 {
		return "", fmt.Errorf("the process of the card's channels has privileges: user %d, capabilities %v, PR_NO_NEW_PRIVS %d (%v)", os.Geteuid(), has, bound, err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return "", fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	err = install(newFilter(calls))
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return fmt.Sprintf("the kernel has no seccomp filters (%v), which restrict its system calls", err), nil
	}
	return "", err
}
