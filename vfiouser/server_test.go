package vfiouser_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestNextClientImmediately attaches again without a pause, with work of the last client still
// unread, as when a VMM is killed and started again.
func TestNextClientImmediately(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	for i := range uint32(200) {
		c := r.dial(nil)
		for k := range uint64(50) {
			require.NoError(t, c.Post32(0, k*4, i))
		}
		c.Close()
		c = r.dial(nil)
		v, err := c.Read32(0, 49*4)
		require.NoError(t, err)
		require.Equal(t, i, v, "the last client's posted writes were not served first")
		c.Close()
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.sock")
	live, err := vfiouser.Listen(path)
	require.NoError(t, err)
	_, err = vfiouser.Listen(path)
	require.ErrorContains(t, err, path+": another server listens there")
	live.SetUnlinkOnClose(false)
	live.Close()
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.NotZero(t, st.Mode()&os.ModeSocket, "a stale socket is there")

	next, err := vfiouser.Listen(path)
	require.NoError(t, err, "a stale socket is taken over")
	next.Close()
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	_, err = vfiouser.Listen(path)
	require.ErrorContains(t, err, path+": a file that is not a socket")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "x", string(got))

	_, err = vfiouser.Listen(filepath.Join(t.TempDir(), "no", "such"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCloseFreesPath: when Close returns, another server may listen at the path.
func TestCloseFreesPath(t *testing.T) {
	for range 100 {
		r := newRig(t, newDevice(t), vfiouser.Options{})
		r.dial(nil).Close()
		require.NoError(t, r.srv.Close())
		next, err := vfiouser.Listen(r.path)
		require.NoError(t, err)
		vfiouser.CloseListener(next)
	}
}

// TestSecondClientIsRefused: the server refuses and counts a second client, and logs at most
// one line a second about it. The first client continues.
func TestSecondClientIsRefused(t *testing.T) {
	log := new(lines)
	r := newRig(t, newDevice(t), vfiouser.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	c := r.dial(nil)
	require.NoError(t, c.Write32(0, 0x50, 77))
	const n = 20
	begun := time.Now()
	for range n {
		_, err := client.Dial(r.path, nil)
		require.Error(t, err)
	}
	const said = "vfio-user client refused: another is attached; "
	require.Eventually(t, func() bool { return r.srv.Stats().Refused == n && log.count(said) > 0 }, 10*time.Second, time.Millisecond)
	require.LessOrEqual(t, log.count(said), 1+int(time.Since(begun)/time.Second))
	v, err := c.Read32(0, 0x50)
	require.NoError(t, err)
	require.EqualValues(t, 77, v)
	require.EqualValues(t, 1, r.srv.Stats().Clients)
	a, b := pair(t)
	defer unix.Close(a)
	require.ErrorIs(t, r.srv.ServeConn(t.Context(), unixConn(t, b)), vfiouser.ErrBusy)
}

func TestPanicsAreContained(t *testing.T) {
	r, c := served(t)
	_, err := c.Read32(0, panicAt)
	require.Equal(t, syscall.EIO, err)
	require.Equal(t, syscall.EIO, c.Write32(0, panicAt, 1))
	require.NoError(t, c.Post32(0, panicAt, 1))
	n, err := c.WriteMulti([]client.MultiWrite{{Offset: 0, Data: []byte{1}}, {Offset: panicAt, Data: []byte{2}}, {Offset: 4, Data: []byte{3}}})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, c.Write32(0, 0x10, 5))
	require.EqualValues(t, 4, r.srv.Stats().Panics)

	_, err = c.Read32(0, failAt)
	require.Equal(t, syscall.EPERM, err)
	_, err = c.Read32(0, oddAt)
	require.Equal(t, syscall.EIO, err)
	_, err = c.Info()
	require.NoError(t, err)
}

// panicky panics where no message waits for the outcome.
type panicky struct {
	*memDevice
	attach bool
}

func (p panicky) Attached(h *vfiouser.Host) {
	p.memDevice.Attached(h)
	h.Memory().Watch(func(c vfiouser.MemoryChange) {
		if c.Removed {
			panic("watcher")
		}
	})
	if p.attach {
		panic("Attached")
	}
}

func (p panicky) Detached() {
	p.memDevice.Detached()
	panic("Detached")
}

func TestPanicsOutsideMessages(t *testing.T) {
	ram := alloc(t, 1<<16)
	d := newDevice(t)
	r := newRig(t, panicky{memDevice: d}, vfiouser.Options{})
	before := mapped(t)
	for range 3 {
		c := r.dial(nil)
		for i := range uint64(4) {
			require.NoError(t, c.Map(i<<16, ram, 0, 1<<16, client.ReadWrite))
		}
		require.Equal(t, syscall.EIO, c.Unmap(0, 1<<16), "a watcher panicked")
		require.Len(t, d.Host().Memory().Ranges(), 3)
		c.Close()
	}
	require.NoError(t, r.srv.Close())
	require.Equal(t, before, mapped(t), "a mapping is left")
	r = newRig(t, panicky{memDevice: d, attach: true}, vfiouser.Options{})
	_, err := client.Dial(r.path, nil)
	require.ErrorIs(t, err, syscall.EIO)
}

func TestBadDevices(t *testing.T) {
	tests := []struct {
		name   string
		change func(d *memDevice)
		want   string
	}{
		{"BAR not a power of two", func(d *memDevice) { d.regions[0].Size = 0x3000 }, "region 0: size 0x3000"},
		{"configuration space", func(d *memDevice) { d.regions[7].Size = 100 }, "region 7"},
		{"flags", func(d *memDevice) { d.regions[0].Flags = 8 }, "flags 0x8"},
		{"map without file", func(d *memDevice) { d.regions[0].Flags |= vfiouser.RegionMmap }, "without a File"},
		{"area outside", func(d *memDevice) { d.regions[1].Areas[0].Size = 1 << 20 }, "sparse area 0x1000+0x100000"},
		{"area unaligned", func(d *memDevice) { d.regions[1].Areas[0].Offset = 5 }, "sparse area 0x5"},
		{"offset unaligned", func(d *memDevice) { d.regions[1].MapOffset = 5 }, "MapOffset 0x5"},
		{"ten regions", func(d *memDevice) { d.regions = make([]vfiouser.Region, 10) }, "10 regions"},
		{"six interrupts", func(d *memDevice) { d.irqs = make([]vfiouser.IRQ, 6) }, "6 interrupt indexes"},
		{"vectors", func(d *memDevice) { d.irqs[2].Count = 4096 }, "interrupt index 2: count 4096"},
	}
	for _, tt := range tests {
		d := newDevice(t)
		tt.change(d)
		_, err := vfiouser.NewServer(d, vfiouser.Options{})
		require.ErrorContains(t, err, tt.want, tt.name)
	}
}
