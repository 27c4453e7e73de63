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

func TestMemory(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<20)
	for i := range ram.Data {
		ram.Data[i] = byte(i >> 12)
	}
	require.NoError(t, c.Map(0x10000, ram, 0x20000, 0x10000, client.ReadWrite))
	require.NoError(t, c.Map(0x20000, ram, 0x50000, 0x1000, client.Readable))
	require.NoError(t, c.Map(0x21000, ram, 0x60000, 0x1000, client.Writable))
	require.NoError(t, c.MapNoFD(0x30000, ram, 0, 0x1000, client.ReadWrite))
	m := r.dev.Host().Memory()
	m.Acquire()
	tests := []struct {
		name  string
		addr  uint64
		n     int
		write bool
		want  int // the first byte; -1 = nil
	}{
		{"to write", 0x10000, 16, true, 0x20},
		{"negative", 0x10000, -1, false, -1},
		{"far", ^uint64(0), 1, false, -1},
		{"huge", 0x10000, 1 << 62, false, -1},
	}
	for _, tt := range tests {
		s := m.Slice(tt.addr, tt.n, tt.write)
		if tt.want < 0 {
			require.Nil(t, s, tt.name)
			continue
		}
		require.Len(t, s, tt.n, tt.name)
		require.Equal(t, tt.n, cap(s), tt.name)
		require.EqualValues(t, tt.want, s[0], tt.name)
	}
	p := make([]byte, 0x20)
	require.NoError(t, m.ReadAt(0x1fff0, p), "copies go across mappings")
	require.EqualValues(t, 0x2f, p[0xf])
	require.EqualValues(t, 0x50, p[0x10])
	require.ErrorIs(t, m.ReadAt(0x20ff0, p), vfiouser.ErrNotMapped)
	require.ErrorIs(t, m.WriteAt(0x1fff0, p), vfiouser.ErrNotMapped)
	require.NoError(t, m.WriteAt(0x10ff0, []byte("across the page line")))
	m.Release()
	require.Equal(t, "across the page line", string(ram.Data[0x20ff0:][:20]))
	require.Len(t, m.Ranges(), 4)
}

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
	m := r.dev.Host().Memory()
	m.Acquire()
	s := m.Slice(1<<24, 1<<24, true)
	require.NotNil(t, s)
	s[1<<24-1] = 1
	m.Release()
	require.NoError(t, c.UnmapAll())
	require.Equal(t, before, mapped(t))
}

// TestTruncatedFile: a client that cuts its file short makes copies fail, not the process.
func TestTruncatedFile(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	require.NoError(t, c.Map(0, ram, 0, 1<<16, client.ReadWrite))
	require.NoError(t, unix.Ftruncate(ram.FD, 0))
	m := d.Host().Memory()
	m.Acquire()
	require.ErrorIs(t, m.ReadAt(0x100, make([]byte, 64)), vfiouser.ErrFault)
	require.ErrorIs(t, m.WriteAt(0x100, make([]byte, 64)), vfiouser.ErrFault)
	m.Release()

	// A handler that touches the slice itself is a handler that panics.
	d.locked(func() {
		d.onRead = func(_ int, _ uint64, p []byte) error {
			m.Acquire()
			defer m.Release()
			copy(p, m.Slice(0, len(p), false))
			return nil
		}
	})
	_, err := c.Read32(0, 0)
	require.Equal(t, syscall.EIO, err)
	_, err = c.Info()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.srv.Stats().Panics)
}

// TestUnmapWaitsForUsers: DMA_UNMAP is answered only after the last user released the memory,
// and watchers are notified in between.
func TestUnmapWaitsForUsers(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	m := r.dev.Host().Memory()
	var mu sync.Mutex
	var seen []vfiouser.MemoryChange
	stop := m.Watch(func(ch vfiouser.MemoryChange) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, vfiouser.MemoryChange{MemoryRange: ch.MemoryRange, Removed: ch.Removed})
		m.Acquire() // a watcher may read the map
		defer m.Release()
		if ch.Removed {
			assert.Nil(t, m.Slice(ch.Addr, 1, false), "a removed range is still to be had")
		}
	})
	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))

	m.Acquire()
	s := m.Slice(0x10000, 1<<16, true)
	done := make(chan error, 1)
	go func() { done <- c.Unmap(0x10000, 1<<16) }()
	for i := range 20 {
		time.Sleep(time.Millisecond)
		s[i] = byte(i) // still mapped
		select {
		case <-done:
			t.Fatal("unmapped under a user")
		default:
		}
	}
	mu.Lock()
	require.Len(t, seen, 1)
	mu.Unlock()
	m.Release()
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
