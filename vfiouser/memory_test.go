package vfiouser_test

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// mapped counts the mappings of clients' memory, the clients' own included.
func mapped(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(b), "/memfd:guest")
}

// TestFileGrows: the server maps a file that grew after it was mapped once more.
func TestFileGrows(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<24)
	before := mapped(t)
	require.NoError(t, c.Map(0, ram, 0, 1<<24, client.ReadWrite))
	require.NoError(t, unix.Ftruncate(ram.FD, 1<<25))
	require.NoError(t, c.Map(1<<24, ram, 1<<24, 1<<24, client.ReadWrite))
	require.NoError(t, r.dev.Host().Memory().Copy(1<<25-1, []byte{1}, true))
	require.NoError(t, c.UnmapAll())
	require.Equal(t, before, mapped(t))
}

// TestTruncatedFile: a client that cuts its file short makes copies fail, not the process.
func TestTruncatedFile(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	var bytes []byte
	stop := d.Host().Memory().Watch(func(ch vfiouser.MemoryChange) { bytes = ch.Bytes })
	defer stop()
	require.NoError(t, c.Map(0, ram, 0, 1<<16, client.ReadWrite))
	require.NoError(t, unix.Ftruncate(ram.FD, 0))
	m := d.Host().Memory()
	require.ErrorIs(t, m.Copy(0x100, make([]byte, 64), false), vfiouser.ErrFault)
	require.ErrorIs(t, m.Copy(0x100, make([]byte, 64), true), vfiouser.ErrFault)

	// A handler that touches the bytes itself is a handler that panics.
	d.locked(func() {
		d.onRead = func(_ int, _ uint64, p []byte) error {
			copy(p, bytes)
			return nil
		}
	})
	_, err := c.Read32(0, 0)
	require.Equal(t, syscall.EIO, err)
	_, err = c.Info()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.srv.Stats().Panics)
}

// TestUnmapWaitsForUsers: DMA_UNMAP is answered only after the watchers have returned, and the
// bytes that they were given stay until then.
func TestUnmapWaitsForUsers(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	m := r.dev.Host().Memory()
	var mu sync.Mutex
	var seen []vfiouser.MemoryChange
	var s []byte
	step := new(sync.Mutex) // of the device
	stop := m.Watch(func(ch vfiouser.MemoryChange) {
		if ch.Removed {
			assert.ErrorIs(t, m.Copy(ch.Addr, make([]byte, 1), false), vfiouser.ErrNotMapped)
			step.Lock()
			defer step.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		s = ch.Bytes
		seen = append(seen, vfiouser.MemoryChange{MemoryRange: ch.MemoryRange, Removed: ch.Removed})
	})
	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))

	step.Lock()
	done := make(chan error, 1)
	go func() { done <- c.Unmap(0x10000, 1<<16) }()
	for i := range 20 {
		time.Sleep(time.Millisecond)
		mu.Lock()
		s[i] = byte(i) // still mapped
		mu.Unlock()
		select {
		case <-done:
			t.Fatal("unmapped under a user")
		default:
		}
	}
	mu.Lock()
	require.Len(t, seen, 1)
	mu.Unlock()
	step.Unlock()
	require.NoError(t, <-done)
	mu.Lock()
	want := vfiouser.MemoryRange{Addr: 0x10000, Size: 1 << 16, Read: true, Write: true, Mapped: true}
	require.Equal(t, []vfiouser.MemoryChange{{MemoryRange: want}, {MemoryRange: want, Removed: true}}, seen)
	mu.Unlock()

	// At the client's end all ranges go, before Detached.
	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))
	left := make(chan int, 1)
	r.dev.locked(func() { r.dev.atDetach = func() { left <- len(m.Ranges()) } })
	c.Close()
	require.Zero(t, <-left)
	mu.Lock()
	require.Len(t, seen, 4)
	mu.Unlock()
	stop()
	r.dev.locked(func() { r.dev.atDetach = nil })
}
