package vfiouser_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func alloc(t testing.TB, n int) *client.Memory {
	t.Helper()
	m, err := client.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestDMAMapErrors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMARegions: 4})
	c := r.dial(nil)
	ram := alloc(t, 1<<20)
	ro, err := os.Open("/proc/self/fd/" + strconv.Itoa(ram.FD))
	require.NoError(t, err)
	defer ro.Close()
	e, err := client.NewEventFD()
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, c.Map(0x100000, ram, 0, 0x10000, client.ReadWrite))

	const none = -1
	ok := wire.DMAMapRequest{Argsz: 32, Flags: 3, Addr: 0x400000, Size: 0x1000}
	tests := []struct {
		name   string
		change func(q *wire.DMAMapRequest)
		fd     int
		err    error
	}{
		{"argsz 31", func(q *wire.DMAMapRequest) { q.Argsz = 31 }, ram.FD, syscall.EINVAL},
		{"unknown flag 8", func(q *wire.DMAMapRequest) { q.Flags |= 8 }, ram.FD, syscall.EINVAL},
		{"unknown flag 2^31", func(q *wire.DMAMapRequest) { q.Flags |= 1 << 31 }, ram.FD, syscall.EINVAL},
		{"mmap flag without descriptor", func(q *wire.DMAMapRequest) { q.Flags |= 4 }, none, syscall.EINVAL},
		{"size 0", func(q *wire.DMAMapRequest) { q.Size = 0 }, ram.FD, syscall.EINVAL},
		{"address unaligned", func(q *wire.DMAMapRequest) { q.Addr++ }, ram.FD, syscall.EINVAL},
		{"size unaligned", func(q *wire.DMAMapRequest) { q.Size += 512 }, ram.FD, syscall.EINVAL},
		{"offset unaligned", func(q *wire.DMAMapRequest) { q.Offset = 8 }, ram.FD, syscall.EINVAL},
		{"wraps", func(q *wire.DMAMapRequest) { q.Addr, q.Size = ^uint64(0)&^0xfff, 0x2000 }, none, syscall.EINVAL},
		{"over 8 TiB", func(q *wire.DMAMapRequest) { q.Size = 8<<40 + 0x1000 }, none, syscall.ENOSPC},
		{"past the end of the file", func(q *wire.DMAMapRequest) { q.Offset, q.Size = 0xff000, 0x2000 }, ram.FD, syscall.EINVAL},
		{"offset past the end", func(q *wire.DMAMapRequest) { q.Offset = 1 << 40 }, ram.FD, syscall.EINVAL},
		{"offset wraps", func(q *wire.DMAMapRequest) { q.Offset = ^uint64(0xfff) }, ram.FD, syscall.EINVAL},
		{"write to a read-only file", func(q *wire.DMAMapRequest) {}, int(ro.Fd()), syscall.EACCES},
		{"not a file to map", func(q *wire.DMAMapRequest) {}, e.FD, syscall.ENODEV},
		{"overlap: inside", func(q *wire.DMAMapRequest) { q.Addr = 0x104000 }, ram.FD, syscall.EEXIST},
		{"overlap: head", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0xff000, 0x2000 }, none, syscall.EEXIST},
		{"overlap: tail", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x10f000, 0x2000 }, none, syscall.EEXIST},
		{"overlap: around", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0, 0x1000000 }, none, syscall.EEXIST},
		{"same but shorter", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x100000, 0x8000 }, ram.FD, syscall.EEXIST},
		{"same but another offset", func(q *wire.DMAMapRequest) { q.Addr, q.Size, q.Offset = 0x100000, 0x10000, 0x1000 }, ram.FD, syscall.EEXIST},
		{"same but other rights", func(q *wire.DMAMapRequest) { q.Addr, q.Size, q.Flags = 0x100000, 0x10000, 1 }, ram.FD, syscall.EEXIST},
		{"same but no descriptor", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x100000, 0x10000 }, none, syscall.EEXIST},
		{"the same again", func(q *wire.DMAMapRequest) { q.Addr, q.Size = 0x100000, 0x10000 }, ram.FD, nil},
		{"read of a read-only file", func(q *wire.DMAMapRequest) { q.Addr, q.Flags = 0x500000, 1 }, int(ro.Fd()), nil},
		{"the last page", func(q *wire.DMAMapRequest) { q.Addr = ^uint64(0) &^ 0xfff }, none, nil},
		{"mmap flag", func(q *wire.DMAMapRequest) { q.Flags |= 4 }, ram.FD, nil},
		{"a fifth of four", func(q *wire.DMAMapRequest) { q.Addr = 0x600000 }, none, syscall.EINVAL},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := ok
			tt.change(&q)
			var fds []int
			if tt.fd != none {
				fds = []int{tt.fd}
			}
			m, err := c.Call(wire.DMAMap, q.Append(nil), fds...)
			require.Equal(t, tt.err, err)
			require.Empty(t, m.Payload)
		})
	}
	require.Len(t, r.dev.Host().Memory().Ranges(), 4)
}

func TestDMAUnmapErrors(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<20)
	require.NoError(t, c.Map(0x10000, ram, 0, 0x10000, client.ReadWrite))
	require.NoError(t, c.MapNoFD(0x20000, ram, 0, 0x10000, client.ReadWrite))
	tests := []struct {
		name string
		u    wire.DMAUnmapRequest
		err  error
	}{
		{"argsz 23", wire.DMAUnmapRequest{Argsz: 23, Addr: 0x10000, Size: 0x10000}, syscall.EINVAL},
		{"argsz over 1 MiB", wire.DMAUnmapRequest{Argsz: 1<<20 + 1, Addr: 0x10000, Size: 0x10000}, syscall.EINVAL},
		{"not there", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x40000, Size: 0x1000}, syscall.ENOENT},
		{"half of one", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x10000, Size: 0x8000}, syscall.ENOENT},
		{"inside one", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x11000, Size: 0xf000}, syscall.ENOENT},
		{"two at once", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x10000, Size: 0x20000}, syscall.ENOENT},
		{"nothing", wire.DMAUnmapRequest{Argsz: 24}, syscall.ENOENT},
		{"all, with an address", wire.DMAUnmapRequest{Argsz: 24, Flags: 2, Addr: 0x10000}, syscall.EINVAL},
		{"all, with a size", wire.DMAUnmapRequest{Argsz: 24, Flags: 2, Size: 0x10000}, syscall.EINVAL},
		{"flags 3", wire.DMAUnmapRequest{Argsz: 24, Flags: 3}, syscall.EINVAL},
		{"flags 4", wire.DMAUnmapRequest{Argsz: 24, Flags: 4, Addr: 0x10000, Size: 0x10000}, syscall.EINVAL},
		{"dirty bitmap of a device that does not migrate", wire.DMAUnmapRequest{Argsz: 48, Flags: 1, Addr: 0x10000, Size: 0x10000}, syscall.EINVAL},
		{"one", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x10000, Size: 0x10000}, nil},
		{"one again", wire.DMAUnmapRequest{Argsz: 24, Addr: 0x10000, Size: 0x10000}, syscall.ENOENT},
		{"all", wire.DMAUnmapRequest{Argsz: 24, Flags: 2}, nil},
		{"all of nothing", wire.DMAUnmapRequest{Argsz: 24, Flags: 2}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := c.Call(wire.DMAUnmap, tt.u.Append(nil))
			require.Equal(t, tt.err, err)
			if err == nil {
				require.Equal(t, tt.u.Append(nil), m.Payload, "the same bytes back")
			}
		})
	}
	require.Empty(t, r.dev.Host().Memory().Ranges())
}

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
		{"first", 0x10000, 16, false, 0x20},
		{"to write", 0x10000, 16, true, 0x20},
		{"last byte", 0x1ffff, 1, true, 0x2f},
		{"whole", 0x10000, 0x10000, true, 0x20},
		{"across two mappings", 0x1fff0, 32, false, -1},
		{"before", 0xfff0, 8, false, -1},
		{"across the start", 0xfff0, 32, false, -1},
		{"read-only to read", 0x20000, 16, false, 0x50},
		{"read-only to write", 0x20000, 16, true, -1},
		{"write-only to read", 0x21000, 16, false, -1},
		{"write-only to write", 0x21000, 16, true, 0x60},
		{"without descriptor", 0x30000, 16, false, -1},
		{"negative", 0x10000, -1, false, -1},
		{"one byte over", 0x10000, 0x10001, true, -1},
		{"the last byte and one over", 0x1ffff, 2, true, -1},
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

// TestOneFileOneMapping: a file that comes many times is mapped once, as guests with many
// ranges of one memfd need, and is let go with its last range.
func TestOneFileOneMapping(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<24)
	before := mapped(t)
	for i := range uint64(1000) {
		require.NoError(t, c.Map(i<<20, ram, i<<12, 0x1000, client.ReadWrite))
	}
	require.NoError(t, c.Map(5000<<20, ram, 0x7000, 0x1000, client.Readable))
	require.Equal(t, before+1, mapped(t))
	for i := range uint64(1000) {
		require.NoError(t, c.Unmap(i<<20, 0x1000))
	}
	require.Equal(t, before+1, mapped(t))
	require.NoError(t, c.UnmapAll())
	require.Equal(t, before, mapped(t))

	// A file that grew after it was mapped is mapped once more.
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
// and watchers hear of it in between.
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
		seen = append(seen, ch)
		m.Acquire() // a watcher may look at the map
		defer m.Release()
		if ch.Removed {
			require.Nil(t, m.Slice(ch.Addr, 1, false), "a removed range is still to be had")
		}
	})
	gen := m.Generation()
	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))
	require.Equal(t, gen+1, m.Generation())

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
	require.Equal(t, gen+2, m.Generation())

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

// TestMapAgainstTwin drives the map with random ranges and holds every answer and every byte
// against a flat list.
func TestMapAgainstTwin(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{MaxDMARegions: 12})
	ram := [2]*client.Memory{alloc(t, 64<<12), alloc(t, 64<<12)}
	for k, f := range ram {
		for i := range f.Data {
			f.Data[i] = byte(i>>12 + 100*k)
		}
	}
	type entry struct {
		addr, size, off uint64
		rights          uint32
		file            int // -1 = none
	}
	rapid.Check(t, func(t *rapid.T) {
		c, err := client.Dial(r.path, nil)
		require.NoError(t, err)
		defer c.Close()
		m := r.dev.Host().Memory()
		var twin []entry
		page := func(max int, what string) uint64 { return uint64(rapid.IntRange(0, max).Draw(t, what)) << 12 }
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				e := entry{
					addr: page(31, "addr"), size: page(7, "pages") + 0x1000, off: page(66, "off"),
					rights: uint32(rapid.IntRange(0, 3).Draw(t, "rights")), file: rapid.IntRange(-1, 1).Draw(t, "file"),
				}
				var want error
				for _, o := range twin {
					if e.addr < o.addr+o.size && o.addr < e.addr+e.size {
						want = syscall.EEXIST
					}
				}
				if want == nil && len(twin) == 12 {
					want = syscall.EINVAL
				}
				same := false
				for _, o := range twin {
					if o.addr == e.addr && o.size == e.size && o.rights == e.rights && o.file == e.file && (o.off == e.off || e.file < 0) {
						want, same = nil, true
					}
				}
				if e.file >= 0 && e.off+e.size > 64<<12 {
					want = syscall.EINVAL
				}
				if e.file < 0 {
					err = c.MapNoFD(e.addr, ram[0], e.off, e.size, e.rights)
				} else {
					err = c.Map(e.addr, ram[e.file], e.off, e.size, e.rights)
				}
				require.Equal(t, want, err)
				if err == nil && !same {
					twin = append(twin, e)
				}
			},
			"unmap": func(t *rapid.T) {
				addr, size := page(31, "addr"), page(7, "pages")+0x1000
				if len(twin) > 0 && rapid.Bool().Draw(t, "known") {
					k := twin[rapid.IntRange(0, len(twin)-1).Draw(t, "which")]
					addr, size = k.addr, k.size
				}
				var want error = syscall.ENOENT
				for i, o := range twin {
					if o.addr == addr && o.size == size {
						twin, want = append(twin[:i:i], twin[i+1:]...), nil
						break
					}
				}
				require.Equal(t, want, c.Unmap(addr, size))
			},
			"unmap all": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
					t.Skip("rare") // rapid counts another action instead
				}
				require.NoError(t, c.UnmapAll())
				twin = nil
			},
			"slice": func(t *rapid.T) {
				addr := page(40, "addr") + uint64(rapid.IntRange(0, 4095).Draw(t, "byte"))
				n := rapid.IntRange(0, 0x9000).Draw(t, "n")
				write := rapid.Bool().Draw(t, "write")
				want := -1
				for _, o := range twin {
					right := client.Readable
					if write {
						right = client.Writable
					}
					if o.file >= 0 && o.rights&right != 0 && addr >= o.addr && addr < o.addr+o.size && addr+uint64(n) <= o.addr+o.size {
						want = int(byte((o.off+addr-o.addr)>>12 + 100*uint64(o.file)))
					}
				}
				m.Acquire()
				defer m.Release()
				s := m.Slice(addr, n, write)
				require.Equal(t, want >= 0, s != nil)
				if s != nil && n > 0 && !write {
					require.EqualValues(t, want, s[0])
				}
			},
			"": func(t *rapid.T) {
				require.Len(t, m.Ranges(), len(twin))
			},
		})
	})
}

// TestMessageDMA: what has no descriptor is read and written by message, also while the
// client's own commands go on.
func TestMessageDMA(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(&client.Options{AnswerDMA: true})
	ram := alloc(t, 1<<20)
	require.NoError(t, c.MapNoFD(0x100000, ram, 0, 1<<20, client.ReadWrite))
	h, ctx := r.dev.Host(), context.Background()
	for i := range ram.Data {
		ram.Data[i] = byte(i ^ i>>9)
	}
	got := make([]byte, 300000)
	require.NoError(t, h.DMARead(ctx, 0x100123, got))
	require.Equal(t, ram.Data[0x123:][:300000], got)
	require.EqualValues(t, 5, r.srv.Stats().Commands[wire.DMARead].Messages, "64 KiB a message")
	require.NoError(t, h.DMAWrite(ctx, 0x180000, got[:70000]))
	require.Equal(t, got[:70000], ram.Data[0x80000:][:70000])
	require.NoError(t, h.DMARead(ctx, 0x100000, nil))
	require.ErrorIs(t, h.DMARead(ctx, 0x300000, got[:4]), vfiouser.ErrNotMapped)
	require.ErrorIs(t, h.DMARead(ctx, 0x1ffffe, got[:4]), vfiouser.ErrNotMapped)

	c.OnDMA(func(cmd wire.Command, addr uint64, n int) error {
		if addr == 0x100800 {
			return syscall.EFAULT
		}
		return nil
	})
	require.ErrorIs(t, h.DMAWrite(ctx, 0x100800, got[:4]), syscall.EFAULT)

	var wg sync.WaitGroup
	for k := range uint64(4) {
		wg.Go(func() {
			p := make([]byte, 512)
			for i := range uint64(200) {
				addr := 0x100000 + k*0x10000 + i*512
				for j := range p {
					p[j] = byte(k + i + uint64(j))
				}
				if err := h.DMAWrite(ctx, addr, p); err != nil && !errors.Is(err, syscall.EFAULT) {
					t.Error(err)
				}
				q := make([]byte, 512)
				if err := h.DMARead(ctx, addr, q); err != nil && !errors.Is(err, syscall.EFAULT) {
					t.Error(err)
				}
				if addr != 0x100800 && string(p) != string(q) {
					t.Errorf("%#x: other bytes", addr)
				}
			}
		})
	}
	for i := range uint32(500) {
		require.NoError(t, c.Write32(0, 0, i))
		v, err := c.Read32(0, 0)
		require.NoError(t, err)
		require.Equal(t, i, v)
	}
	wg.Wait()
}

// TestMappedDMA goes without messages, also from a handler.
func TestMappedDMA(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	ram := alloc(t, 1<<16)
	require.NoError(t, c.Map(0, ram, 0, 1<<16, client.ReadWrite))
	require.NoError(t, c.MapNoFD(1<<16, ram, 0, 1<<16, client.ReadWrite))
	copy(ram.Data, "hello")
	h := d.Host()
	d.locked(func() {
		d.onRead = func(_ int, off uint64, p []byte) error { return h.DMARead(context.Background(), off, p) }
	})
	p := make([]byte, 5)
	require.NoError(t, c.Read(2, 0, p))
	require.Equal(t, "hello", string(p))
	require.Zero(t, r.srv.Stats().Commands[wire.DMARead].Messages)
}

// TestNoMessageDMAInHandler: a handler that asks for DMA by message is refused at once. The
// client waits for that handler, holding what it would need to answer (QEMU's big lock), so
// the request could only time out: that is what happens when the refusal is evaded.
func TestNoMessageDMAInHandler(t *testing.T) {
	d := newDevice(t)
	r := newRig(t, d, vfiouser.Options{DMATimeout: 50 * time.Millisecond})
	c := r.dial(&client.Options{NoVersion: true})
	_, err := c.Negotiate(0, 0, "")
	require.NoError(t, err)
	require.NoError(t, c.MapNoFD(0, alloc(t, 4096), 0, 4096, client.ReadWrite))
	h := d.Host()
	errs := make(chan error, 1)
	set := func(fn func() error) {
		d.locked(func() { d.onRead = func(int, uint64, []byte) error { errs <- fn(); return nil } })
	}
	set(func() error { return h.DMARead(context.Background(), 0, make([]byte, 4)) })
	_, err = c.Read32(0, 0)
	require.NoError(t, err)
	require.ErrorIs(t, <-errs, vfiouser.ErrInHandler)

	into := make([]byte, 4)
	set(func() error {
		done := make(chan error)
		go func() { done <- h.DMARead(context.Background(), 0, into) }()
		return <-done
	})
	// As QEMU under its lock: nothing is answered before the region's reply is in.
	require.NoError(t, c.Send(readMessage(0)))
	m, err := c.RecvAny()
	require.NoError(t, err)
	require.Equal(t, wire.DMARead, m.Command)
	dma := m.ID
	m, err = c.RecvAny()
	require.NoError(t, err)
	require.Equal(t, wire.RegionRead, m.Command)
	require.ErrorIs(t, <-errs, vfiouser.ErrDMATimeout)

	// The answer that comes too late is recognised, and the stream goes on.
	late := message(wire.DMARead, wire.TypeReply, append(wire.DMAAccess{Addr: 0, Count: 4}.Append(nil), 1, 2, 3, 4))
	le.PutUint16(late, dma)
	require.NoError(t, c.Send(late))
	_, err = c.Info()
	require.NoError(t, err)
	require.Zero(t, r.srv.Stats().StrayReply)
	require.Equal(t, make([]byte, 4), into, "the buffer was the caller's again")
	require.NoError(t, c.Send(late), "the same again answers nothing")
	m, err = c.RecvAny()
	require.NoError(t, err)
	require.Equal(t, syscall.EINVAL, syscall.Errno(m.Errno))
	require.EqualValues(t, 1, r.srv.Stats().StrayReply)
}

// TestDMAAnswers feeds the server answers of all kinds.
func TestDMAAnswers(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: 5 * time.Second})
	c := r.dial(nil)
	require.NoError(t, c.MapNoFD(0x1000, alloc(t, 4096), 0, 4096, client.ReadWrite))
	h := r.dev.Host()
	u32count := func(addr uint64, n uint32) []byte { return le.AppendUint32(le.AppendUint64(nil, addr), n) }
	good := wire.DMAAccess{Addr: 0x1000, Count: 4}.Append(nil)
	tests := []struct {
		name    string
		write   bool
		payload []byte
		flags   uint32
		errno   uint32
		want    error
	}{
		{"read", false, append(good[:16:16], "data"...), 0, 0, nil},
		{"read, QEMU 10", false, append(u32count(0x1000, 4), "data"...), 0, 0, nil},
		{"read, one byte short", false, append(good[:16:16], "dat"...), 0, 0, vfiouser.ErrDMAReply},
		{"read, bare header", false, nil, 0, 0, vfiouser.ErrDMAReply},
		{"read, other address", false, append(wire.DMAAccess{Addr: 0x2000, Count: 4}.Append(nil), "data"...), 0, 0, vfiouser.ErrDMAReply},
		{"read, other count", false, append(wire.DMAAccess{Addr: 0x1000, Count: 5}.Append(nil), "data"...), 0, 0, vfiouser.ErrDMAReply},
		{"read, too long", false, make([]byte, 100000), 0, 0, vfiouser.ErrDMAReply},
		{"read, error", false, nil, wire.Error, uint32(syscall.EPERM), syscall.EPERM},
		{"read, error 0", false, nil, wire.Error, 0, syscall.EINVAL},
		{"read, error 5000", false, nil, wire.Error, 5000, syscall.EINVAL},
		{"write", true, good, 0, 0, nil},
		{"write, as specified", true, u32count(0x1000, 4), 0, 0, nil},
		{"write, QEMU 10", true, nil, 0, 0, nil},
		{"write, other count", true, u32count(0x1000, 3), 0, 0, vfiouser.ErrDMAReply},
		{"write, odd length", true, make([]byte, 5), 0, 0, vfiouser.ErrDMAReply},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := []byte("xxxx")
			done := make(chan error, 1)
			go func() {
				if tt.write {
					done <- h.DMAWrite(context.Background(), 0x1000, p)
				} else {
					done <- h.DMARead(context.Background(), 0x1000, p)
				}
			}()
			m, err := c.RecvAny()
			require.NoError(t, err)
			size := 16
			if tt.write {
				size = 20
			}
			require.Len(t, m.Payload, size)
			require.Equal(t, good, m.Payload[:16])
			raw := make([]byte, 16)
			wire.Header{ID: m.ID, Command: m.Command, Size: uint32(16 + len(tt.payload)), Flags: wire.TypeReply | tt.flags, Errno: tt.errno}.Put(raw)
			require.NoError(t, c.Send(append(raw, tt.payload...)))
			err = <-done
			require.ErrorIs(t, err, tt.want)
			if tt.want == nil && !tt.write {
				require.Equal(t, "data", string(p))
			}
		})
	}
	t.Run("an answer to another command", func(t *testing.T) {
		done := make(chan error, 1)
		p := make([]byte, 4)
		go func() { done <- h.DMARead(context.Background(), 0x1000, p) }()
		m, err := c.RecvAny()
		require.NoError(t, err)
		raw := message(wire.DMAWrite, wire.TypeReply, good)
		le.PutUint16(raw, m.ID)
		require.NoError(t, c.Send(raw))
		m2, err := c.RecvAny()
		require.NoError(t, err)
		require.Equal(t, syscall.EINVAL, syscall.Errno(m2.Errno))
		raw = message(wire.DMARead, wire.TypeReply, append(good[:16:16], "data"...))
		le.PutUint16(raw, m.ID)
		require.NoError(t, c.Send(raw))
		require.NoError(t, <-done)
		require.Equal(t, "data", string(p))
	})
	t.Run("the client leaves", func(t *testing.T) {
		done := make(chan error, 1)
		go func() { done <- h.DMARead(context.Background(), 0x1000, make([]byte, 4)) }()
		_, err := c.RecvAny()
		require.NoError(t, err)
		c.Close()
		require.ErrorIs(t, <-done, vfiouser.ErrDetached)
		require.ErrorIs(t, h.DMARead(context.Background(), 0x1000, make([]byte, 4)), vfiouser.ErrDetached)
		require.Nil(t, h.Memory().Slice(0x1000, 4, false))
		h.Trigger(0, 0)
	})
}

// TestDMAChunks: messages keep to the client's max_data_xfer_size.
func TestDMAChunks(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{})
	c := r.dial(&client.Options{AnswerDMA: true, Capabilities: `{"capabilities":{"max_data_xfer_size":1024}}`})
	ram := alloc(t, 1<<16)
	require.NoError(t, c.MapNoFD(0, ram, 0, 1<<16, client.ReadWrite))
	var mu sync.Mutex
	var sizes []int
	c.OnDMA(func(_ wire.Command, _ uint64, n int) error {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, n)
		return nil
	})
	require.NoError(t, r.dev.Host().DMARead(context.Background(), 8, make([]byte, 2500)))
	mu.Lock()
	require.Equal(t, []int{1024, 1024, 452}, sizes)
	mu.Unlock()
	c.Close()

	c = r.dial(&client.Options{Capabilities: `{"capabilities":{"max_data_xfer_size":0}}`})
	require.NoError(t, c.MapNoFD(0, ram, 0, 1<<16, client.ReadWrite))
	require.ErrorIs(t, r.dev.Host().DMARead(context.Background(), 0, make([]byte, 4)), vfiouser.ErrNoMessageDMA)
}

// TestDMAToDeafClient: a client that neither reads nor answers costs the caller its timeout,
// and no more.
func TestDMAToDeafClient(t *testing.T) {
	r := newRig(t, newDevice(t), vfiouser.Options{DMATimeout: 100 * time.Millisecond})
	c := r.dial(nil)
	require.NoError(t, c.MapNoFD(0, alloc(t, 1<<20), 0, 1<<20, client.ReadWrite))
	h := r.dev.Host()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := h.DMAWrite(context.Background(), 0, make([]byte, 1<<20)); err == nil {
				t.Error("nobody took the data")
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, h.DMARead(ctx, 0, make([]byte, 4)))
}
