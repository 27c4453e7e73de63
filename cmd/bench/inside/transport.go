package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var transport = scene.Scenario{
	Name: "transport", About: "one access to a register over the bare socket, by each transport, against a bare echo of messages of the same size",
	Rows: append([]setup.Row{setup.EchoRow()}, setup.Transports()...),
	Cases: func(p scene.Params) (out []scene.Case) {
		n := pick(p, 400, 4000)
		for _, k := range []struct {
			name   string
			writes int
			reads  int
			posted bool
		}{
			{"read", 0, 1, false},
			{"write", 1, 0, false},
			{"32-reads", 0, 32, false},
			{"32-writes", 32, 0, false},
			{"32-posted-writes-and-a-read", 32, 1, true},
			{"1000-posted-writes-and-a-read", 1000, 1, true},
		} {
			b := newBatch(k.reads, k.writes, k.posted)
			out = append(out, scene.Case{
				Name: k.name, Shape: setup.Common,
				Prepare: func(_ context.Context, s *setup.Server) (io.Closer, error) { return dial(s, b) },
				Run:     func(_ context.Context, t *scene.Take) error { return b.measure(t, n) },
			})
		}
		return out
	},
}

// batch is messages that go out at once.
type batch struct {
	raw           []byte
	want          int // bytes of replies
	reads, writes int
	count         int // accesses that share the time: the writes, or the reads alone
}

// newBatch makes a batch of writes with the reads behind them.
func newBatch(reads, writes int, posted bool) *batch {
	b := &batch{reads: reads, writes: writes, count: max(reads, writes)}
	add := func(cmd wire.Command, flags uint32, off uint64, data []byte) {
		access := append(wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}), data...)
		b.raw = append(b.raw, wire.Message(wire.Header{ID: 7, Command: cmd, Flags: flags}, access)...)
		if flags == 0 {
			b.want += wire.HeaderSize + wire.RegionAccessSize
		}
	}
	flags := uint32(0)
	if posted {
		flags = wire.NoReply
	}
	for i := range writes {
		add(wire.RegionWrite, flags, scratch, []byte{byte(i), 0, 0, 0})
	}
	for range reads {
		add(wire.RegionRead, 0, 0, nil)
		b.want += 4
	}
	return b
}

// line is a connected socket.
type line struct {
	fd    int
	ended chan struct{} // closed when the echo has ended; nil for a server
}

// Close closes the socket, and waits for an echo.
func (l *line) Close() error {
	err := unix.Close(l.fd)
	if l.ended != nil {
		<-l.ended
	}
	return err
}

// replyTimeout bounds a wait for replies.
const replyTimeout = 20 * time.Second

// dial connects to the server and negotiates, or starts an echo. The descriptor blocks, as
// the servers' do.
func dial(s *setup.Server, b *batch) (_ *line, err error) {
	if s.Row.Name == setup.Echo {
		return newEcho(b)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.Endpoints[0].Socket}); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // the client keeps its descriptor
	if err != nil {
		return nil, err
	}
	c, err := client.NewFD(dup, nil)
	if err != nil {
		return nil, err
	}
	if err := c.Close(); err != nil {
		return nil, err
	}
	limit := unix.NsecToTimeval(replyTimeout.Nanoseconds())
	return &line{fd: fd}, os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
}

// newEcho answers each batch with as many bytes as a server would.
func newEcho(b *batch) (*line, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	l := &line{p[0], make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer unix.Close(p[1])
		runtime.LockOSThread()
		in, out := make([]byte, len(b.raw)), make([]byte, b.want)
		for readAll(p[1], in) == nil && writeAll(p[1], out) == nil {
		}
	}()
	return l, nil
}

// measure makes about n accesses.
func (b *batch) measure(t *scene.Take, n int) error {
	runtime.LockOSThread() // as the serving threads are
	defer runtime.UnlockOSThread()
	fd, in := t.State.(*line).fd, make([]byte, b.want)
	endpoint := t.Server.Endpoints[0]
	reads, writes, _ := endpoint.Handled()
	rounds := (n + b.count - 1) / b.count
	err := t.Phase("accesses", func() error {
		for range rounds {
			if err := errors.Join(writeAll(fd, b.raw), readAll(fd, in)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if t.Server.Row.Name != setup.Echo {
		r, w, _ := endpoint.Handled()
		if got, want := r+w-reads-writes, uint64(rounds*(b.reads+b.writes)); got != want {
			return fmt.Errorf("%d accesses arrived at the device, of %d", got, want)
		}
	}
	t.Per(rounds * b.count)
	return nil
}

func readAll(fd int, p []byte) error {
	for got := 0; got < len(p); {
		n, err := unix.Read(fd, p[got:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("%d of %d bytes of replies within %v", got, len(p), replyTimeout)
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return fmt.Errorf("%d of %d bytes of replies: %w", got, len(p), io.ErrUnexpectedEOF)
		default:
			got += n
		}
	}
	return nil
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("write", err)
		}
		p = p[max(n, 0):]
	}
	return nil
}
