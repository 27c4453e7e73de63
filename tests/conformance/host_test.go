package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const attachFDs = wire.IRQDataEventFD | wire.IRQActionTrigger

// hosted is a device that hands its hosts to the test.
type hosted struct {
	*everything
	attached chan *vfiouser.Host
	detached chan struct{}
	panics   atomic.Bool
}

func (d *hosted) Attached(h *vfiouser.Host) { d.attached <- h }
func (d *hosted) Detached()                 { d.detached <- struct{}{} }

func (d *hosted) ReadRegion(index int, off uint64, p []byte) error {
	if d.panics.Load() && index == vfiouser.RegionBAR0 {
		panic("as asked for")
	}
	return d.everything.ReadRegion(index, off, p)
}

func withHost(t *testing.T, by maker) (*hosted, vfiouser.Transport, *client.Client, *vfiouser.Host) {
	t.Helper()
	d := &hosted{everything: newEverything(t), attached: make(chan *vfiouser.Host, 8), detached: make(chan struct{}, 8)}
	tr, path := serveAt(t, by, d)
	c, err := client.Dial(path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return d, tr, c, <-d.attached
}

// TestHost: a device's calls of its host have the same effects on both transports.
func TestHost(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		d, tr, c, h := withHost(t, by)

		// Interrupts.
		es, err := c.AttachIRQs(vfiouser.IRQMSIX, 0, 4)
		require.NoError(t, err)
		for v, e := range es {
			defer e.Close()
			h.Trigger(vfiouser.IRQMSIX, v)
			_, err := e.Wait(time.Minute)
			require.NoError(t, err)
		}
		h.Trigger(vfiouser.IRQMSIX, 99)
		require.Positive(t, tr.Stats().IRQ.Unrouted)
		require.Positive(t, tr.Stats().IRQ.Signalled)

		// Memory with a descriptor: both see the same bytes.
		m, err := client.Alloc(1 << 20)
		require.NoError(t, err)
		defer m.Close()
		require.NoError(t, c.Map(0x10000, m, 0, 1<<20, client.ReadWrite))
		require.NoError(t, h.DMAWrite(t.Context(), 0x10010, []byte("from the device")))
		require.Equal(t, "from the device", string(m.Data[0x10:0x1f]))
		copy(m.Data[0x2000:], "from the client")
		p := [15]byte{}
		require.NoError(t, h.DMARead(t.Context(), 0x12000, p[:]))
		require.Equal(t, "from the client", string(p[:]))
		r := h.Memory().Ranges()
		require.Equal(t, []vfiouser.MemoryRange{{Addr: 0x10000, Size: 1 << 20, Read: true, Write: true, Mapped: true}}, r)

		// Memory without: by message. The tests of package vfiouser have the native server's.
		if _, ok := tr.(*vfiouser.Server); !ok {
			require.NoError(t, c.MapNoFD(0x4000000, m, 0, 1<<20, client.ReadWrite))
			require.ErrorIs(t, h.DMAWrite(t.Context(), 0x4000100, p[:]), vfiouser.ErrNoMessageDMA)
		}

		// An unmapped range is withdrawn before the reply.
		removed := make(chan vfiouser.MemoryChange, 8)
		stop := h.Memory().Watch(func(c vfiouser.MemoryChange) { removed <- c })
		require.NoError(t, c.Unmap(0x10000, 1<<20))
		stop()
		require.Len(t, removed, 1)
		require.True(t, (<-removed).Removed)
		require.ErrorIs(t, h.DMARead(t.Context(), 0x12000, p[:]), vfiouser.ErrNotMapped)

		// A panic is an error of that access.
		d.panics.Store(true)
		_, err = c.Read32(vfiouser.RegionBAR0, 0)
		require.Error(t, err)
		_, err = c.Read32(vfiouser.RegionConfig, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, tr.Stats().Panics)

		// The end.
		c.Close()
		<-d.detached
		h.Trigger(vfiouser.IRQMSIX, 0)
		err = h.DMARead(context.Background(), 0x4000100, p[:])
		require.True(t, errors.Is(err, vfiouser.ErrDetached) || errors.Is(err, vfiouser.ErrNotMapped), "%v", err)
	})
}

// within fails the test if fn does not return.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
}

// TestEndDespiteSilentClient: a client that sends nothing, or half a message, does not delay the
// server's end.
func TestEndDespiteSilentClient(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		for _, say := range [][]byte{nil, {1, 0, 1}, append([]byte{1, 0, 1, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 2)} {
			tr, path := serveAt(t, by, newEverything(t))
			c, err := net.Dial("unix", path)
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Write(say)
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond)
			within(t, "the server does not end", func() { tr.Close() })
		}
	})
}

// TestFullEventfd: a client whose eventfd is full and blocking does not block the goroutine that
// triggers its interrupt. The client's flags are the client's.
func TestFullEventfd(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		_, _, c, h := withHost(t, by)
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		require.NoError(t, err)
		defer unix.Close(fd)
		_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1))
		require.NoError(t, err)
		require.NoError(t, c.SetIRQs(attachFDs, vfiouser.IRQMSIX, 0, 1, nil, fd))
		within(t, "a trigger waits for the client", func() {
			for range 20 {
				h.Trigger(vfiouser.IRQMSIX, 0)
				time.Sleep(5 * time.Millisecond) // the server tries to signal
			}
		})
		fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		require.NoError(t, err)
		require.Zero(t, fl&unix.O_NONBLOCK)
		_, err = unix.Read(fd, make([]byte, 8)) // there is room again
		require.NoError(t, err)
		_, err = c.Read32(vfiouser.RegionConfig, 0)
		require.NoError(t, err)
	})
}
