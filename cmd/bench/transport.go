package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var transport = scenario{
	name: "transport", about: "one access to a register over the bare socket, by each transport, against a bare echo of messages of the same size",
	setups: transports(),
	cases: func(quick bool) (out []testCase) {
		for _, k := range []struct {
			name          string
			writes, reads int
			flags         uint32
		}{
			{"read", 0, 1, 0},
			{"write", 1, 0, 0},
			{"32-reads", 0, 32, 0},
			{"32-writes", 32, 0, 0},
			{"32-posted-writes-and-a-read", 32, 1, wire.NoReply},
			{"1000-posted-writes-and-a-read", 1000, 1, wire.NoReply},
		} {
			b := newBatch(k.reads, k.writes, k.flags)
			out = append(out, testCase{
				name: k.name, shape: common,
				prepare: func(t *take) any { return b.dial(t) },
				run:     func(t *take) { b.measure(t, pick(quick, 400, 4000)) },
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
}

// newBatch makes a batch of writes with the reads behind them.
func newBatch(reads, writes int, writeFlags uint32) *batch {
	b := &batch{reads: reads, writes: writes}
	add := func(cmd wire.Command, flags uint32, off uint64, data []byte) {
		access := append(wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}), data...)
		b.raw = append(b.raw, wire.Message(wire.Header{ID: 7, Command: cmd, Flags: flags}, access)...)
		if flags == 0 {
			b.want += wire.HeaderSize + wire.RegionAccessSize
		}
	}
	for i := range writes {
		add(wire.RegionWrite, writeFlags, scratch, []byte{byte(i), 0, 0, 0})
	}
	for range reads {
		add(wire.RegionRead, 0, 0, nil)
		b.want += 4
	}
	return b
}

// replyTimeout bounds a wait for replies.
const replyTimeout = 20 * time.Second

// dial connects to the server and negotiates, or starts an echo, which answers each batch with as
// many bytes as a server would. The descriptors block, as the servers' do.
func (b *batch) dial(t *take) *os.File {
	if t.server.setup.name == echo {
		p := get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
		near, far := os.NewFile(uintptr(p[0]), "echo"), os.NewFile(uintptr(p[1]), "echo")
		ended := make(chan struct{})
		t.guests = append(t.guests, near, closer(func() error { <-ended; return far.Close() }))
		go func() {
			defer close(ended)
			runtime.LockOSThread()
			in, out := make([]byte, len(b.raw)), make([]byte, b.want)
			for exchange(far, nil, in) == nil && exchange(far, out, nil) == nil {
			}
		}()
		return near
	}
	// The library makes its socket itself, in place of the one that a client may have found first.
	for end := time.Now().Add(replyTimeout); ; time.Sleep(time.Millisecond) {
		fd := get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
		f := os.NewFile(uintptr(fd), "server")
		err := caught(func() {
			must(unix.Connect(fd, &unix.SockaddrUnix{Name: t.server.endpoints[0].socket}))
			c := get(client.NewFD(get(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)), nil)) // the client keeps its descriptor
			limit := unix.NsecToTimeval(replyTimeout.Nanoseconds())
			must(c.Close(), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
		})
		if err == nil {
			t.guests = append(t.guests, f)
			return f
		}
		if must(f.Close()); time.Now().After(end) {
			must(err)
		}
	}
}

// closer is a function as an io.Closer.
type closer func() error

func (c closer) Close() error { return c() }

// exchange writes out and reads in.
func exchange(f *os.File, out, in []byte) error {
	if len(out) > 0 {
		if _, err := f.Write(out); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(f, in)
	return err
}

// measure makes about n accesses. Those that share the time are the writes, or the reads alone.
func (b *batch) measure(t *take, n int) {
	runtime.LockOSThread() // as the serving threads are
	defer runtime.UnlockOSThread()
	f, in, endpoint := t.state.(*os.File), make([]byte, b.want), t.server.endpoints[0]
	reads, writes, _ := endpoint.handled()
	share := max(b.reads, b.writes)
	rounds := (n + share - 1) / share
	t.phase("accesses", func() {
		for range rounds {
			must(exchange(f, b.raw, in))
		}
	})
	r, w, _ := endpoint.handled()
	if got, want := r+w-reads-writes, uint64(rounds*(b.reads+b.writes)); got != want && t.server.setup.name != echo {
		must(fmt.Errorf("%d accesses arrived at the device, of %d", got, want))
	}
	t.per(rounds * share)
}
