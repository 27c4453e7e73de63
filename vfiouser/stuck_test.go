package vfiouser_test

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestTriggerNeverWaits: a client fills an eventfd at any moment and has it block. Nothing that the
// server does for an interrupt waits for the client.
func TestTriggerNeverWaits(t *testing.T) {
	r, c := served(t)
	fd := eventfd(t).FD
	require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 0, 1, nil, fd))
	h := r.dev.Host()
	var triggers atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				h.Trigger(irqMSI, 0)
				triggers.Add(1)
			}
		}
	}()
	fill := func() {
		require.NoError(t, unix.SetNonblock(fd, true))
		room := binary.NativeEndian.AppendUint64(nil, math.MaxUint64-64)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		_, _ = unix.Read(fd, make([]byte, 8))
		_, _ = unix.Write(fd, room)
		for i := 0; i < 100; i++ {
			_, _ = unix.Write(fd, one)
		}
		require.NoError(t, unix.SetNonblock(fd, false))
	}
	for round := range 300 {
		fill()
		for end, from := time.Now().Add(10*time.Second), triggers.Load(); triggers.Load() < from+2; runtime.Gosched() {
			if time.Now().After(end) {
				_, _ = unix.Read(fd, make([]byte, 8)) // frees the trigger
				t.Fatalf("round %d: a trigger waits for room in the client's eventfd", round)
			}
		}
	}
	close(stop)
	<-stopped
}

// lingering returns a socket whose last close waits until the test ends: it has sent more than its
// peer takes.
func lingering(t testing.TB) (fd int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = peer.(*net.TCPConn).SetLinger(0) // a reset ends the wait
		peer.Close()
	})
	require.NoError(t, out.(*net.TCPConn).SetLinger(3600))
	f, err := out.(*net.TCPConn).File()
	require.NoError(t, err)
	out.Close()
	for {
		if _, err := unix.SendmsgN(int(f.Fd()), make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT); err != nil {
			require.Equal(t, unix.EAGAIN, err)
			break
		}
	}
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return fd
}

// sendLingering gives a lingering socket away, by a byte to a connection.
func sendLingering(t testing.TB, to int) {
	fd := lingering(t)
	require.NoError(t, unix.Sendmsg(to, []byte{0}, unix.UnixRights(fd), nil, 0))
	unix.Close(fd)
}

// refused is a message that the server refuses, with any descriptors.
var refused = append(header(wire.DeviceSetIRQs, 36, 0), make([]byte, 20)...)

// gives sends a message with a lingering socket, while the server does not read.
func (r *rig) gives(c *client.Client, message []byte) {
	fd := lingering(r.t)
	r.dev.locked(func() {
		require.NoError(r.t, c.Send(readMessage(0)))
		require.NoError(r.t, c.Send(message, fd))
		unix.Close(fd)
	})
}

// TestStuckClient: whatever a client sends, the server's counters and its
// interrupts are at hand, and Close ends the client's thread.
func TestStuckClient(t *testing.T) {
	info := message(wire.DeviceGetInfo, 0, wire.Append(nil, wire.DeviceInfo{Argsz: 16}))
	eventFD := message(wire.DeviceSetIRQs, 0, wire.Append(nil, wire.IRQSet{Argsz: 20, Flags: dataFD | actTrigger, Index: irqMSI, Count: 1}))
	memory := message(wire.DMAMap, 0, wire.Append(nil, wire.DMAMapRequest{Argsz: 32, Flags: wire.DMARdAllowed, Size: 0x1000}))
	for name, begin := range map[string]func(t *testing.T, r *rig, c *client.Client, fd int){
		"replies that nobody reads": func(t *testing.T, _ *rig, _ *client.Client, fd int) {
			eventually(t, "the server goes on to read", func() bool {
				_, err := unix.SendmsgN(fd, info, nil, nil, unix.MSG_DONTWAIT)
				return err == unix.EAGAIN
			})
		},
		"a descriptor of a message that is refused": func(_ *testing.T, r *rig, c *client.Client, _ int) { r.gives(c, refused) },
		"a descriptor that is no eventfd":           func(_ *testing.T, r *rig, c *client.Client, _ int) { r.gives(c, eventFD) },
		"a descriptor that is no memory":            func(_ *testing.T, r *rig, c *client.Client, _ int) { r.gives(c, memory) },
		"memory of messages that are refused": func(t *testing.T, r *rig, c *client.Client, _ int) {
			r.gives(c, refused) // stops the goroutine that closes
			fd, err := unix.MemfdCreate("refused", unix.MFD_CLOEXEC)
			require.NoError(t, err)
			require.NoError(t, c.Send(refused, fd))
			unix.Close(fd)
			require.Equal(t, 2, drainReplies(t, c, 3))
			require.Contains(t, strings.Join(openFDs(t), " "), "/memfd:refused", "the client's thread waits until its pages are free")
		},
		"a descriptor that nobody receives": func(t *testing.T, r *rig, c *client.Client, _ int) {
			fd := lingering(t)
			r.dev.locked(func() {
				require.NoError(t, c.Send(readMessage(0), eventfd(t).FD)) // ends a receive
				require.NoError(t, c.Send(header(wire.RegionRead, 0, 0), eventfd(t).FD))
				require.NoError(t, c.Send(info, fd))
				unix.Close(fd)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newDevice(t), vfiouser.Options{})
			fd, err := client.DialFD(r.path)
			require.NoError(t, err)
			c, err := client.NewFD(fd, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 0, 1, nil, eventfd(t).FD))
			begin(t, r, c, fd)
			prompt(t, "Trigger and Stats", func() {
				r.dev.Host().Trigger(irqMSI, 0)
				r.srv.Stats()
			})
			prompt(t, "Close", func() { require.NoError(t, r.srv.Close()) })
		})
	}
}

// refuseClients has the server refuse n clients, the first of which sends a lingering socket. Another takes
// c's place meanwhile.
func refuseClients(t *testing.T, r *rig, c *client.Client, n int) (next *client.Client) {
	var fds []int
	r.dev.locked(func() { // the server waits for the end of c
		require.NoError(t, c.Send(readMessage(0)))
		require.NoError(t, c.Close())
		for range 1 + n {
			fd, err := client.DialFD(r.path)
			require.NoError(t, err)
			fds = append(fds, fd)
		}
		sendLingering(t, fds[1])
	})
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	next, err := client.NewFD(fds[0], nil)
	require.NoError(t, err)
	t.Cleanup(func() { next.Close() })
	return next
}

// TestLingeringClients: while the kernel does not close what clients sent, the server takes few more, of
// clients and of what the one that is attached sends. It goes on to serve that one, and its end waits for
// none.
func TestLingeringClients(t *testing.T) {
	const most = 64
	for name, few := range map[string]func(t *testing.T, r *rig, c *client.Client) (taken func() uint64){
		"clients": func(t *testing.T, r *rig, c *client.Client) func() uint64 {
			c = refuseClients(t, r, c, 2*most)
			eventually(t, "clients are refused", func() bool { return r.srv.Stats().Refused >= most })
			for range 2 * most {
				require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 0, 1, nil, eventfd(t).FD))
			}
			return func() uint64 { return r.srv.Stats().Refused }
		},
		"descriptors": func(t *testing.T, r *rig, c *client.Client) func() uint64 {
			r.gives(c, refused)
			fd := eventfd(t).FD
			for range 2*most - 1 {
				require.NoError(t, c.Send(refused, fd))
			}
			taken := func() uint64 { return r.srv.Stats().Commands[wire.DeviceSetIRQs].Errors }
			eventually(t, "descriptors are taken", func() bool { return taken() >= most })
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end) && taken() < 2*most; {
				time.Sleep(time.Millisecond) // the server would go on
			}
			return taken
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused := uint64(2 * most)
			for try := 0; try < 5 && refused == 2*most; try++ { // a signal to the closing thread may end its wait
				r := newRig(t, newDevice(t), vfiouser.Options{})
				taken := few(t, r, r.dial(nil))
				prompt(t, "Close", func() { require.NoError(t, r.srv.Close()) })
				refused = taken()
			}
			require.Less(t, refused, uint64(2*most))
		})
	}
}

// TestCloseListener: the end of a listener, or of a connection that cannot be served, does not wait for
// what is in its queue, also when the server cannot have more descriptors.
func TestCloseListener(t *testing.T) {
	for _, none := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "s.sock")
		l, err := vfiouser.Listen(path)
		require.NoError(t, err)
		queued, err := client.DialFD(path)
		require.NoError(t, err)
		defer unix.Close(queued)
		sendLingering(t, queued)
		if none {
			srv, err := vfiouser.NewServer(newDevice(t), vfiouser.Options{})
			require.NoError(t, err)
			a, b := pair(t)
			defer unix.Close(a)
			nc := unixConn(t, b)
			sendLingering(t, a)
			var limit unix.Rlimit
			require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
			defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
			require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}))
			prompt(t, "ServeConn", func() { require.ErrorIs(t, srv.ServeConn(t.Context(), nc), unix.EMFILE) })
		}
		prompt(t, "CloseListener", func() { vfiouser.CloseListener(l) })
		if !none {
			require.NoFileExists(t, path)
		}
	}
}

// TestProgressIsNotStuck: a client's thread may take the longer to end the more ranges it frees, and the
// larger they are. A range that is gone does not count.
func TestProgressIsNotStuck(t *testing.T) {
	const timeout, large, small = time.Second, 1 << 30, 1 << 20
	ram := sparse(t, large, 0)
	for name, tt := range map[string]struct {
		ranges   int
		size     uint64
		each     time.Duration // that the device waits for its engines
		unmapped bool          // a large range before
		stuck    bool
	}{
		"many ranges":        {ranges: 30, size: small, each: timeout * 3 / 2 / 30},
		"large range":        {ranges: 1, size: large, each: timeout * 5 / 2},
		"large one that was": {ranges: 1, size: small, each: timeout * 5 / 2, unmapped: true, stuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newDevice(t), vfiouser.Options{EndTimeout: timeout})
			c := r.dial(nil)
			if tt.unmapped {
				require.NoError(t, c.Map(0, ram, 0, large, client.ReadWrite))
				require.NoError(t, c.Unmap(0, large))
			}
			for i := range uint64(tt.ranges) {
				require.NoError(t, c.Map(i*tt.size, ram, 0, tt.size, client.ReadWrite))
			}
			removed := 0
			r.dev.Host().Memory().Watch(func(change vfiouser.MemoryChange) {
				if change.Removed {
					removed++
					time.Sleep(tt.each)
				}
			})
			err := r.srv.Close()
			require.Equal(t, tt.stuck, errors.Is(err, vfiouser.ErrStuck), "%v", err)
			eventually(t, "the thread ends", func() bool { return r.srv.Close() == nil })
			require.Equal(t, tt.ranges, removed)
		})
	}
}

// prompt fails the test if fn, which must not wait for a client, does not return.
func prompt(t testing.TB, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal(what + " waits for the client")
	}
}
