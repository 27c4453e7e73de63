package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/sandbox"
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
	if os.Getuid() == 0 || os.Geteuid() == 0 {
		return errors.New("the process of the card's channels must not run as root, whose channels may copy from physical addresses: set card.user")
	}
	return sandbox.Again(sandbox.Files{Paths: CardFiles(minor)}, map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles}, socketFD+1)
}

// CardFiles are the files by which a process reaches a card, which the server must be allowed, too.
func CardFiles(minor int) []sandbox.Path {
	return []sandbox.Path{
		{Name: "/dev/nvidiactl", Use: sandbox.Device}, {Name: fmt.Sprintf("/dev/nvidia%d", minor), Use: sandbox.Device}, {Name: nvrm.VersionFile, Use: sandbox.Read},
	}
}

// forbid is the second step. It checks the first.
func forbid(calls []uint32) (missing string, err error) {
	if os.Geteuid() == 0 {
		return "", errors.New("the process of the card's channels runs as root")
	}
	missing, _, err = sandbox.Forbid(newFilter(calls))
	return missing, err
}

// newFilter allows what the process needs, and some calls more.
func newFilter(more []uint32) *sandbox.Filter {
	f := sandbox.NewFilter(sandbox.Refuse)
	f.Runtime()
	f.Allow(unix.SYS_READ, unix.SYS_WRITE, unix.SYS_OPENAT, unix.SYS_FCNTL)
	f.Allow(more...)
	f.NotExecutable()
	f.Argument(unix.SYS_IOCTL, 1, func(f *sandbox.Filter) {
		escapes := make([]uint32, len(nvrm.Escapes))
		for i, e := range nvrm.Escapes {
			escapes[i] = 'F'<<8 | uint32(e)
		}
		f.Masked(0xffff, escapes...) // without direction and size
	})
	return f
}
