package vfiouser_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

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

// TestTruncatedFile: a client that cuts its file short makes copies fail, not the process.
func TestTruncatedFile(t *testing.T) {
	r, c := served(t)
	d := r.dev
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
// bytes that they were given stay until then. At the client's end all ranges go, before Detached.
func TestUnmapWaitsForUsers(t *testing.T) {
	r, c := served(t)
	ram := alloc(t, 1<<16)
	m := r.dev.Host().Memory()
	came, going, step := make(chan vfiouser.MemoryChange, 1), make(chan vfiouser.MemoryChange, 1), make(chan struct{}, 1)
	defer m.Watch(func(ch vfiouser.MemoryChange) {
		if !ch.Removed {
			came <- ch
			return
		}
		assert.ErrorIs(t, m.Copy(ch.Addr, make([]byte, 1), false), vfiouser.ErrNotMapped)
		going <- ch
		<-step
	})()
	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))
	want := vfiouser.MemoryRange{Addr: 0x10000, Size: 1 << 16, Read: true, Write: true, Mapped: true}
	require.Equal(t, want, (<-came).MemoryRange)

	done := make(chan error, 1)
	go func() { done <- c.Unmap(0x10000, 1<<16) }()
	ch := <-going
	require.Equal(t, want, ch.MemoryRange)
	for i := range 20 {
		time.Sleep(time.Millisecond)
		ch.Bytes[i] = byte(i) // still mapped
		require.Empty(t, done, "unmapped under a user")
	}
	step <- struct{}{}
	require.NoError(t, <-done)
	_, err := ch.File.Stat()
	require.ErrorIs(t, err, os.ErrClosed)

	require.NoError(t, c.Map(0x10000, ram, 0, 1<<16, client.ReadWrite))
	left := make(chan int, 1)
	r.dev.locked(func() { r.dev.atDetach = func() { left <- len(m.Ranges()) } })
	step <- struct{}{}
	c.Close()
	require.Zero(t, <-left)
	require.Equal(t, want, (<-going).MemoryRange)
	r.dev.locked(func() { r.dev.atDetach = nil })
}

// TestKeptFiles: a client's files stay open for the device only up to a bound; their bytes are there nevertheless.
func TestKeptFiles(t *testing.T) {
	r, c := served(t)
	var kept, others atomic.Int32 // the watcher is called on the client's thread
	defer r.dev.Host().Memory().Watch(func(ch vfiouser.MemoryChange) {
		switch {
		case ch.Removed:
		case ch.File != nil:
			kept.Add(1)
		case len(ch.Bytes) == 0x1000:
			others.Add(1)
		}
	})()
	for i := range uint64(20) {
		require.NoError(t, c.Map(i<<12, alloc(t, 0x1000), 0, 0x1000, client.ReadWrite))
	}
	require.Equal(t, []int32{16, 4}, []int32{kept.Load(), others.Load()})
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
		defer m.Watch(func(ch vfiouser.MemoryChange) {
			if first := make([]byte, 1); ch.Mapped && ch.Read {
				_, err := ch.File.ReadAt(first, int64(ch.Off))
				assert.NoError(t, err)
				assert.Equal(t, ch.Bytes[0], first[0])
			}
		})()
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
					want = syscall.ENOSPC
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
				addr, size := page(31, "addr"), page(15, "pages")+0x1000
				if len(twin) > 0 && rapid.Bool().Draw(t, "known") {
					k := twin[rapid.IntRange(0, len(twin)-1).Draw(t, "which")]
					addr, size = k.addr, k.size
				}
				var want error
				var left []entry
				for _, o := range twin {
					switch {
					case o.addr >= addr+size || o.addr+o.size <= addr:
						left = append(left, o)
					case o.addr < addr || o.addr+o.size > addr+size:
						want = syscall.EINVAL
					}
				}
				if want == nil {
					twin = left
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
			"copy": func(t *rapid.T) {
				addr := page(40, "addr") + uint64(rapid.IntRange(0, 4095).Draw(t, "byte"))
				p, write := make([]byte, rapid.IntRange(0, 0x9000).Draw(t, "n")), rapid.Bool().Draw(t, "write")
				right := uint32(client.Readable)
				if write {
					right = client.Writable
				}
				var want error
				at := make([]*byte, len(p)) // in the files
				for i := range at {
					k := slices.IndexFunc(twin, func(o entry) bool { return o.rights&right != 0 && addr+uint64(i)-o.addr < o.size })
					switch {
					case k < 0:
						want = vfiouser.ErrNotMapped
					case twin[k].file >= 0:
						o := twin[k]
						at[i] = &ram[o.file].Data[o.off+addr+uint64(i)-o.addr]
						p[i] = *at[i]
					case want == nil:
						want = vfiouser.ErrByMessage
					}
				}
				got := bytes.Clone(p)
				if !write {
					clear(got)
				}
				require.Equal(t, want, m.Copy(addr, got, write))
				require.True(t, want != nil || bytes.Equal(p, got))
			},
			"": func(t *rapid.T) {
				require.Len(t, m.Ranges(), len(twin))
			},
		})
	})
}
