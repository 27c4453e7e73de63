package worker

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/sandbox"
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
	libraries, err := sandbox.Libraries()
	if err != nil {
		return err
	}
	files := sandbox.Files{Paths: append(CardFiles(minor), sandbox.Path{Name: self, Use: sandbox.Program}, sandbox.Path{Name: "/etc/ld.so.cache", Use: sandbox.Read})}
	for _, name := range libraries {
		files.Paths = append(files.Paths, sandbox.Path{Name: name, Use: sandbox.Program})
	}
	missing, err := files.Restrict()
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

// CardFiles are the files by which a process reaches a card, which the server must be allowed, too.
func CardFiles(minor int) []sandbox.Path {
	return []sandbox.Path{
		{Name: "/dev/nvidiactl", Use: sandbox.Device}, {Name: fmt.Sprintf("/dev/nvidia%d", minor), Use: sandbox.Device}, {Name: nvrm.VersionFile, Use: sandbox.Read},
	}
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
	return newFilter(calls).Install()
}
