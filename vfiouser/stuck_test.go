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
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
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
	fd, _ = lingeringUntil(t)
	return fd
}

// lingeringUntil is lingering, but the close can be ended earlier.
func lingeringUntil(t testing.TB) (fd int, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
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
	end = func() {
		_ = peer.(*net.TCPConn).SetLinger(0) // a reset ends the wait
		peer.Close()
	}
	t.Cleanup(end)
	return fd, end
}

// TestStuckClient: whatever a client sends, the server's counters and its
// interrupts are at hand, and Close ends the client's thread.
func TestStuckClient(t *testing.T) {
	info := wire.Append(header(wire.DeviceGetInfo, 32, 0), wire.DeviceInfo{Argsz: 16})
	read := wire.Append(header(wire.RegionRead, 32, 0), wire.RegionAccess{Count: 4})
	refused := append(header(wire.DeviceSetIRQs, 36, 0), make([]byte, 20)...)
	eventFD := wire.Append(header(wire.DeviceSetIRQs, 36, 0), wire.IRQSet{Argsz: 20, Flags: dataFD | actTrigger, Index: irqMSI, Count: 1})
	memory := wire.Append(header(wire.DMAMap, 48, 0), wire.DMAMapRequest{Argsz: 32, Flags: wire.DMARdAllowed, Size: 0x1000})
	gives := func(message []byte) func(*testing.T, *rig, *client.Client, int) {
		return func(t *testing.T, r *rig, c *client.Client, _ int) {
			fd := lingering(t)
			r.dev.locked(func() { // while the server does not read
				require.NoError(t, c.Send(read))
				require.NoError(t, c.Send(message, fd))
				unix.Close(fd)
			})
		}
	}
	for name, begin := range map[string]func(t *testing.T, r *rig, c *client.Client, fd int){
		"half a message": func(t *testing.T, _ *rig, c *client.Client, _ int) {
			require.NoError(t, c.Send(info[:16]))
		},
		"replies that nobody reads": func(t *testing.T, _ *rig, _ *client.Client, fd int) {
			eventually(t, "the server goes on to read", func() bool {
				_, err := unix.SendmsgN(fd, info, nil, nil, unix.MSG_DONTWAIT)
				return err == unix.EAGAIN
			})
		},
		"a descriptor of a message that is refused": gives(refused),
		"a descriptor that is no eventfd":           gives(eventFD),
		"a descriptor that is no memory":            gives(memory),
		"memory of messages that are refused": func(t *testing.T, r *rig, c *client.Client, fd int) {
			gives(refused)(t, r, c, fd) // stops the goroutine that closes
			fd, err := unix.MemfdCreate("refused", unix.MFD_CLOEXEC)
			require.NoError(t, err)
			require.NoError(t, c.Send(refused, fd))
			unix.Close(fd)
			for range 3 {
				_, err = c.Recv()
				require.NoError(t, err)
			}
			require.Contains(t, strings.Join(openFDs(t), " "), "/memfd:refused", "the client's thread waits until its pages are free")
		},
		"a descriptor that nobody receives": func(t *testing.T, r *rig, c *client.Client, _ int) {
			fd := lingering(t)
			r.dev.locked(func() {
				require.NoError(t, c.Send(read, eventfd(t).FD)) // ends a receive
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
	stuck := lingering(t)
	r.dev.locked(func() { // the server waits for the end of c
		require.NoError(t, c.Send(wire.Append(header(wire.RegionRead, 32, 0), wire.RegionAccess{Count: 4})))
		require.NoError(t, c.Close())
		for range 1 + n {
			fd, err := client.DialFD(r.path)
			require.NoError(t, err)
			fds = append(fds, fd)
		}
		require.NoError(t, unix.Sendmsg(fds[1], []byte{0}, unix.UnixRights(stuck), nil, 0))
		unix.Close(stuck)
	})
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	next, err := client.NewFD(fds[0], nil)
	require.NoError(t, err)
	t.Cleanup(func() { next.Close() })
	return next
}

// TestLingeringClients: the server takes few clients while the kernel does not close what one sent. It
// goes on to serve the client that is attached, and its end waits for none.
func TestLingeringClients(t *testing.T) {
	const most = 64
	refused := uint64(2 * most)
	for try := 0; try < 5 && refused == 2*most; try++ { // a signal to the closing thread may end its wait
		r := newRig(t, newDevice(t), vfiouser.Options{})
		c := refuseClients(t, r, r.dial(nil), 2*most)
		eventually(t, "clients are refused", func() bool { return r.srv.Stats().Refused >= most })
		for range 2 * most {
			require.NoError(t, c.SetIRQs(dataFD|actTrigger, irqMSI, 0, 1, nil, eventfd(t).FD))
		}
		prompt(t, "Close", func() { require.NoError(t, r.srv.Close()) })
		refused = r.srv.Stats().Refused
	}
	require.Less(t, refused, uint64(2*most))
}

// TestCloseListener: the end of a listener does not wait for what is in its queue.
func TestCloseListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	fd, err := client.DialFD(path)
	require.NoError(t, err)
	defer unix.Close(fd)
	stuck := lingering(t)
	require.NoError(t, unix.Sendmsg(fd, []byte{0}, unix.UnixRights(stuck), nil, 0))
	unix.Close(stuck)
	prompt(t, "CloseListener", func() { vfiouser.CloseListener(l) })
	require.NoFileExists(t, path)
}

// TestNoDescriptorIsFree: the server waits for no client when it cannot have more descriptors.
func TestNoDescriptorIsFree(t *testing.T) {
	srv, err := vfiouser.NewServer(newDevice(t), vfiouser.Options{})
	require.NoError(t, err)
	a, b := pair(t)
	defer unix.Close(a)
	nc := unixConn(t, b)
	l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "s.sock"))
	require.NoError(t, err)
	queued, err := client.DialFD(l.Addr().String())
	require.NoError(t, err)
	defer unix.Close(queued)
	for _, fd := range []int{a, queued} {
		stuck := lingering(t)
		require.NoError(t, unix.Sendmsg(fd, []byte{0}, unix.UnixRights(stuck), nil, 0))
		unix.Close(stuck)
	}
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}))
	prompt(t, "ServeConn", func() { require.ErrorIs(t, srv.ServeConn(t.Context(), nc), unix.EMFILE) })
	prompt(t, "CloseListener", func() { vfiouser.CloseListener(l) })
}

// TestManyRangesAreNotStuck: a client's thread that frees range after range is not stuck, however many
// there are.
func TestManyRangesAreNotStuck(t *testing.T) {
	const timeout, ranges = 400 * time.Millisecond, 30
	r := newRig(t, newDevice(t), vfiouser.Options{EndTimeout: timeout})
	c := r.dial(nil)
	removed := 0
	r.dev.Host().Memory().Watch(func(change vfiouser.MemoryChange) {
		if change.Removed { // the device waits for its engines
			removed++
			time.Sleep(timeout * 3 / 2 / ranges)
		}
	})
	for i := range uint64(ranges) {
		require.NoError(t, c.MapNoFD(i<<20, new(client.Memory), 0, 1<<20, client.ReadWrite))
	}
	require.NoError(t, r.srv.Close())
	require.Equal(t, ranges, removed)
}

// TestLargeRangeIsNotStuck: the longer a range takes to be freed by its size, the longer may it take.
// A range that is gone does not count.
func TestLargeRangeIsNotStuck(t *testing.T) {
	const timeout, large, small = 100 * time.Millisecond, 1 << 30, 1 << 20
	for _, stuck := range []bool{false, true} {
		r := newRig(t, newDevice(t), vfiouser.Options{EndTimeout: timeout})
		c := r.dial(nil)
		mem, err := client.Alloc(large)
		require.NoError(t, err)
		defer mem.Close()
		require.NoError(t, c.Map(0, mem, 0, large, client.ReadWrite))
		if stuck {
			require.NoError(t, c.Unmap(0, large))
			require.NoError(t, c.Map(0, mem, 0, small, client.ReadWrite))
		}
		r.dev.Host().Memory().Watch(func(change vfiouser.MemoryChange) {
			if change.Removed {
				time.Sleep(2*timeout + timeout/2)
			}
		})
		err = r.srv.Close()
		require.Equal(t, stuck, errors.Is(err, vfiouser.ErrStuck), "%v", err)
		eventually(t, "the thread does not end", func() bool { return r.srv.Close() == nil })
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
