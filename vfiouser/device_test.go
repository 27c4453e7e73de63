package vfiouser_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// memDevice is a device of plain memory, with offsets of BAR0 that do more:
//
//	panicAt  an access panics
//	failAt   an access fails with EPERM
//	oddAt    an access fails with an error that is no errno
type memDevice struct {
	regions []vfiouser.Region
	irqs    []vfiouser.IRQ
	mem     [vfiouser.NumRegions][]byte

	onRead func(index int, off uint64, p []byte) error

	mu       sync.Mutex     // a test may read the connection thread's data only under it
	host     *vfiouser.Host // of the present client
	attached int
	detached int
	resets   int
	unmasked [][2]int
	atDetach func()
	onUnmask func()
}

const (
	panicAt = 0xff0
	failAt  = 0xff4
	oddAt   = 0xff8
)

func newDevice(t testing.TB) *memDevice {
	d := &memDevice{}
	d.regions = make([]vfiouser.Region, vfiouser.NumRegions)
	d.regions[0] = vfiouser.Region{Size: 0x1000, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
	d.regions[1] = vfiouser.Region{
		Size: 0x10000, Flags: vfiouser.RegionRead | vfiouser.RegionWrite | vfiouser.RegionMmap,
		File: memfd(t, 0x14000), MapOffset: 0x4000,
		Areas: []vfiouser.SparseArea{{Offset: 0x1000, Size: 0x2000}, {Offset: 0x8000, Size: 0x8000}},
	}
	d.regions[2] = vfiouser.Region{
		Size: 1 << 21, Flags: vfiouser.RegionRead | vfiouser.RegionWrite | vfiouser.RegionMmap,
		File: memfd(t, 1<<21),
	}
	d.regions[6] = vfiouser.Region{Size: 0x800, Flags: vfiouser.RegionRead}
	d.regions[7] = vfiouser.Region{Size: 256, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
	for i, r := range d.regions {
		d.mem[i] = make([]byte, r.Size)
	}
	copy(d.mem[7], []byte{0xde, 0x10, 0xd8, 0x06})
	d.irqs = []vfiouser.IRQ{
		{Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQMaskable | vfiouser.IRQAutomasked},
		{Count: 4, Flags: vfiouser.IRQEventFD},
		{Count: 40, Flags: vfiouser.IRQEventFD},
		{Count: 1, Flags: vfiouser.IRQEventFD},
		{},
	}
	return d
}

func memfd(t testing.TB, size int64) *os.File {
	fd, err := unix.MemfdCreate("bar", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "bar")
	require.NoError(t, f.Truncate(size))
	t.Cleanup(func() { f.Close() })
	return f
}

func (d *memDevice) Regions() []vfiouser.Region { return d.regions }
func (d *memDevice) IRQs() []vfiouser.IRQ       { return d.irqs }

func (d *memDevice) special(index int, off uint64) error {
	if index != 0 {
		return nil
	}
	switch off {
	case panicAt:
		panic("device panics as requested")
	case failAt:
		return fmt.Errorf("failure as requested: %w", syscall.EPERM)
	case oddAt:
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (d *memDevice) ReadRegion(index int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.special(index, off); err != nil {
		return err
	}
	if d.onRead != nil {
		return d.onRead(index, off, p)
	}
	copy(p, d.mem[index][off:])
	return nil
}

func (d *memDevice) WriteRegion(index int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.special(index, off); err != nil {
		return err
	}
	copy(d.mem[index][off:], p)
	return nil
}

func (d *memDevice) Reset() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	return nil
}

func (d *memDevice) Attached(h *vfiouser.Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host = h
	d.attached++
}

func (d *memDevice) Detached() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.atDetach != nil {
		d.atDetach()
	}
	d.detached++
}

func (d *memDevice) Host() *vfiouser.Host {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host
}

func (d *memDevice) IRQUnmasked(index, vector int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unmasked = append(d.unmasked, [2]int{index, vector})
	if d.onUnmask != nil {
		d.onUnmask()
	}
}

// locked runs fn in step with the connection's thread.
func (d *memDevice) locked(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
}

type rig struct {
	t    testing.TB
	dev  *memDevice
	srv  *vfiouser.Server
	path string
}

// newRig serves dev at a socket until the test ends. fds and goroutines are counted: what the
// test began with must be what it ends with.
func newRig(t testing.TB, dev vfiouser.Device, o vfiouser.Options) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "s.sock")}
	switch d := dev.(type) {
	case *memDevice:
		r.dev = d
	case *migDevice:
		r.dev = d.memDevice
	}
	before := openFDs(t)
	srv, err := vfiouser.NewServer(dev, o)
	require.NoError(t, err)
	r.srv = srv
	l, err := vfiouser.Listen(r.path)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, vfiouser.ErrServerClosed)
		var now []string
		require.Eventually(t, func() bool {
			now = openFDs(t)
			return len(now) <= len(before)
		}, patience, 5*time.Millisecond, "descriptors leaked: %v, before %v", &now, before)
	})
	return r
}

// served is a rig of a device of plain memory, with a client.
func served(t testing.TB) (*rig, *client.Client) {
	t.Helper()
	r := newRig(t, newDevice(t), vfiouser.Options{})
	return r, r.dial(nil)
}

func (r *rig) dial(o *client.Options) *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.path, o)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	return c
}

func (r *rig) rawDial() *client.Client {
	return r.dial(&client.Options{NoVersion: true})
}

// openFDs returns what is open, with the descriptors of the poller and of all servers, which come
// with the first of each, made to exist.
func openFDs(t testing.TB) (open []string) {
	t.Helper()
	_, err := vfiouser.NewServer(&memDevice{}, vfiouser.Options{MaxDMAAlloc: 1})
	require.NoError(t, err)
	warm, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "warm"), Net: "unix"})
	require.NoError(t, err)
	warm.Close()
	dir, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range dir {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasSuffix(name, "/fd") { // not the descriptor of the listing itself
			open = append(open, e.Name()+" "+name)
		}
	}
	return open
}

// patience bounds each wait for an event that must come.
const patience = time.Minute

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, time.Millisecond, what)
}

var le = binary.LittleEndian

// pair returns two ends of a stream socket, in blocking mode.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return p[0], p[1]
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// connect returns a new client's end, and a channel that is closed when srv has served it.
func connect(t testing.TB, srv *vfiouser.Server) (int, <-chan struct{}) {
	a, b := pair(t)
	nc := unixConn(t, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ServeConn(context.Background(), nc)
	}()
	return a, done
}

func message(cmd wire.Command, flags uint32, payload []byte) []byte {
	return wire.Message(wire.Header{ID: 7, Command: cmd, Flags: flags}, payload)
}

func readMessage(off uint64) []byte {
	return message(wire.RegionRead, 0, wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}))
}

func writeMessage(off uint64, flags uint32) []byte {
	return message(wire.RegionWrite, flags, append(wire.Append(nil, wire.RegionAccess{Offset: off, Count: 4}), 1, 2, 3, 4))
}

// negotiated returns the end of a client that is served.
func negotiated(t testing.TB) (fd int) {
	t.Helper()
	fd, err := client.DialFD(newRig(t, newDevice(t), vfiouser.Options{}).path)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.Write(fd, message(wire.Version, 0, []byte(qemuVersion)))
	require.NoError(t, err)
	_, err = unix.Read(fd, make([]byte, 256))
	require.NoError(t, err)
	return fd
}
