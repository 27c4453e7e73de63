package soft_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// memoryFile is shared memory that pages can live in.
func memoryFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, int64(n)))
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() {
		require.NoError(t, unix.Munmap(mem))
		require.NoError(t, f.Close())
	})
	return f, mem
}

func newCard(t testing.TB) *soft.Card {
	t.Helper()
	c, err := soft.New(soft.Config{VRAM: 64 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// TestRelocate moves pages back and forth: they keep their bytes, the card finds them, and
// the old backing keeps no data.
func TestRelocate(t *testing.T) {
	const n, at = 8 << 12, 0x200000
	c := newCard(t)
	f, mem := memoryFile(t, 4*n)
	want := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(want)
	require.True(t, c.WriteVRAM(at, want))
	got := make([]byte, n)
	move := func(m card.Relocation) {
		t.Helper()
		m.Addr, m.Size = at, n
		done, err := c.Relocate(m)
		require.NoError(t, err)
		require.EqualValues(t, n, done)
		require.True(t, c.ReadVRAM(at, got))
		require.Equal(t, want, got)
	}
	copy(mem[n:], "what the guest left there before")
	move(card.Relocation{To: f, Off: n})
	require.Equal(t, want, mem[n:2*n])
	mem[n+5]++ // a processor's store
	want[5]++
	copy(mem, want)
	move(card.Relocation{To: f, NoCopy: true})
	require.Equal(t, want, mem[n:2*n], "stays as it is")
	require.NoError(t, c.ScrubVRAM(at+4096, 4096))
	clear(want[4096:8192])
	require.Equal(t, want, mem[:n], "a scrub clears a page where it lives")
	move(card.Relocation{})
	require.Equal(t, make([]byte, n), mem[:n])
	require.NoError(t, c.Reset())
	require.True(t, c.ReadVRAM(at, got))
	require.Equal(t, make([]byte, n), got)
}

// TestSameVRAM: the comparison is exact for any backing of the pages and any writer, and that of
// unwritten pages with zeros allocates no memory. LookVRAM's pieces, with zeros between them, equal
// the memory.
func TestSameVRAM(t *testing.T) {
	const pages, page, at = 64, 1 << 12, 0x400000
	c := newCard(t)
	f, mem := memoryFile(t, pages*page)
	rng := rand.New(rand.NewPCG(5, 6))
	want, away, looked := make([]byte, pages*page), [pages]bool{}, [pages]bool{}
	look := func() (n int) {
		got, end := make([]byte, len(want)), uint64(at)
		c.LookVRAM(at-3<<20, 8<<20, func(addr uint64, p []byte) {
			require.GreaterOrEqual(t, addr, end)
			end = addr + uint64(len(p))
			n += copy(got[addr-at:], p)
		})
		require.LessOrEqual(t, end, uint64(at+pages*page))
		require.True(t, bytes.Equal(want, got))
		return n
	}
	same, untouched := 0, 0
	for range scale.Of(2000, 4000) {
		i := uint64(rng.IntN(pages))
		byteAt := i*page + uint64(rng.IntN(page))
		switch rng.IntN(6) {
		case 0: // by the card, or whoever drives it
			want[byteAt] = byte(rng.IntN(2))
			require.True(t, c.WriteVRAM(at+byteAt, want[byteAt:byteAt+1]))
		case 1: // by the guest's processor
			if away[i] {
				want[byteAt] = byte(rng.IntN(2))
				mem[byteAt] = want[byteAt]
			}
		case 2:
			m := card.Relocation{Addr: at + i*page, Size: page, Off: i * page}
			if away[i] = !away[i]; away[i] {
				m.To = f
			}
			_, err := c.Relocate(m)
			require.NoError(t, err)
			looked[i] = false
		case 3:
			looked[i] = false
			require.NoError(t, c.ScrubVRAM(at+i*page, page))
			clear(want[i*page:][:page])
		}
		n := 1 + rng.IntN(3*page)
		from := uint64(rng.IntN(pages*page - n))
		if rng.IntN(4) != 0 { // a page, as in scans of tables
			from, n = from&^(page-1), page
		}
		p := make([]byte, n)
		if rng.IntN(3) == 0 {
			copy(p, want[from:])
		}
		touched, before := false, look()
		c.LookVRAM(at+from&^(page-1), page, func(uint64, []byte) { touched = true })
		got := c.SameVRAM(at+from, p)
		require.Equal(t, bytes.Equal(p, want[from:][:n]), got, "%d bytes at %#x", n, from)
		if got {
			same++
		}
		if got && !touched && n == page && !looked[from/page] {
			untouched++
			looked[from/page] = true
			require.Equal(t, before, look(), "to look at nothing makes no memory of it")
		}
	}
	done, err := c.Relocate(card.Relocation{Addr: at, Size: pages * page}) // all pieces in one move
	require.NoError(t, err)
	require.EqualValues(t, pages*page, done)
	require.True(t, c.SameVRAM(at, want))
	require.Greater(t, same, 250)
	require.Greater(t, untouched, 100)
	c.LookVRAM(1<<40, page, func(uint64, []byte) { t.Fatal("there is nothing") })
}

// TestSameVRAMWhilePagesMove: a page with data is never reported as zero, although its backing
// changes concurrently.
func TestSameVRAMWhilePagesMove(t *testing.T) {
	const at = 0x400000
	c := newCard(t)
	f, _ := memoryFile(t, 2<<12)
	require.True(t, c.WriteVRAM(at+1<<12+7, []byte{1}))
	var done atomic.Bool
	var movers sync.WaitGroup
	movers.Go(func() {
		defer done.Store(true)
		for range 3000 {
			_, err := c.Relocate(card.Relocation{Addr: at, Size: 2 << 12, To: f})
			assert.NoError(t, err)
			_, err = c.Relocate(card.Relocation{Addr: at, Size: 2 << 12})
			assert.NoError(t, err)
		}
	})
	for zeros := make([]byte, 1<<12); !done.Load(); {
		require.False(t, c.SameVRAM(at+1<<12, zeros))
		require.True(t, c.SameVRAM(at, zeros))
	}
	movers.Wait()
}
