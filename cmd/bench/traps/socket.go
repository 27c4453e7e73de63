package traps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// socketKinds are the accesses over the bare socket: how many messages go out at once, and
// whether they want replies.
var socketKinds = []struct {
	name  string
	batch int
	write bool
	flags uint32
}{
	{"read", 1, false, 0},
	{"write", 1, true, 0},
	{"32 pipelined reads, each", 32, false, 0},
	{"32 pipelined writes, each", 32, true, 0},
	{"32 posted writes and a read, each", 32, true, wire.NoReply},
	{"1,000 posted writes and a read, each", 1000, true, wire.NoReply},
}

// overSocket measures over the bare socket.
func (o *Options) overSocket(ctx context.Context, dir string, r *Report) error {
	seats, free, err := o.takeSeats(ctx, dir)
	if err != nil {
		return err
	}
	defer free()
	lines := make([]int, len(seats))
	for i, s := range seats {
		if lines[i], err = dial(s.path); err != nil {
			return fmt.Errorf("%s: %w", o.Transports[i], err)
		}
		defer unix.Close(lines[i])
	}
	runtime.LockOSThread() // as the serving threads are
	defer runtime.UnlockOSThread()
	for n, k := range socketKinds {
		fmt.Fprintf(o.Progress, "over the bare socket, %d of %d: %s\n", n+1, len(socketKinds), k.name)
		f, err := o.figure(ctx, Socket, k.name, func(i int) (float64, error) {
			m := newMessages(k.batch, k.write, k.flags)
			ns, reads, writes, err := m.exchange(lines[i], o.Count)
			if err != nil {
				return 0, err
			}
			return ns, seats[i].device.arrived(reads, writes)
		})
		if err != nil {
			return err
		}
		r.Figures = append(r.Figures, f)
	}
	return nil
}

// patience is how long a reply may take: a server that says less than is due ends the measuring.
const patience = 20 * time.Second

// dial connects and negotiates. The descriptor blocks, as the servers' do.
func dial(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	fail := func(err error) (int, error) {
		unix.Close(fd)
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fail(os.NewSyscallError("connect", err))
	}
	// The client negotiates on a duplicate, which it keeps.
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	c, err := client.NewFD(dup, nil)
	if err != nil {
		return fail(err)
	}
	if err := c.Close(); err != nil {
		return fail(err)
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fail(os.NewSyscallError("setsockopt", err))
	}
	return fd, nil
}

// messages are what goes out at once, and what has to come back.
type messages struct {
	raw           []byte
	want          int // bytes
	batch         int // accesses that are counted in the time
	reads, writes int
}

func newMessages(batch int, write bool, flags uint32) *messages {
	m := &messages{batch: batch}
	for i := range batch {
		if write {
			m.write(byte(i), flags)
		} else {
			m.read(flags)
		}
	}
	if flags&wire.NoReply != 0 { // the read behind them tells that they are done
		m.read(0)
	}
	return m
}

func (m *messages) read(flags uint32) {
	m.append(wire.RegionRead, flags, wire.RegionAccess{Offset: readRegister, Count: 4}, nil)
	m.reads++
	m.want += wire.HeaderSize + wire.RegionAccessSize + 4
}

func (m *messages) write(v byte, flags uint32) {
	m.append(wire.RegionWrite, flags, wire.RegionAccess{Offset: writeRegister, Count: 4}, []byte{v, 0, 0, 0})
	m.writes++
	if flags&wire.NoReply == 0 {
		m.want += wire.HeaderSize + wire.RegionAccessSize
	}
}

func (m *messages) append(cmd wire.Command, flags uint32, a wire.RegionAccess, data []byte) {
	var h [wire.HeaderSize]byte
	wire.Header{ID: 7, Command: cmd, Size: uint32(wire.HeaderSize + wire.RegionAccessSize + len(data)), Flags: flags}.Put(h[:])
	m.raw = append(a.Append(append(m.raw, h[:]...)), data...)
}

// exchange sends until n accesses and more are done, and returns how long one took and how many
// reads and writes there were.
func (m *messages) exchange(fd, n int) (ns float64, reads, writes int, err error) {
	buf := make([]byte, 64<<10)
	done := 0
	began := time.Now()
	for ; done < n; done += m.batch {
		if err := writeAll(fd, m.raw); err != nil {
			return 0, 0, 0, err
		}
		reads += m.reads
		writes += m.writes
		for got := 0; got < m.want; {
			k, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			switch {
			case errors.Is(err, unix.EAGAIN):
				return 0, 0, 0, fmt.Errorf("%d of %d bytes of replies, and no more within %v", got, m.want, patience)
			case err != nil:
				return 0, 0, 0, os.NewSyscallError("read", err)
			case k == 0:
				return 0, 0, 0, fmt.Errorf("%d of %d bytes of replies: %w", got, m.want, io.ErrUnexpectedEOF)
			}
			got += k
		}
	}
	return float64(time.Since(began)) / float64(done), reads, writes, nil
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
