package dma

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// TestAbsentPages: a window's accesses fail where the owner of the memory does not populate it.
func TestAbsentPages(t *testing.T) {
	w := New(1, &fakeCard{}).Guest(0)
	mem := []byte("0123456789abcdef")
	require.NoError(t, w.MapDMA(0, card.Mapping{Mem: mem, Write: true, Populate: func(off, n uint64) bool { return off+n <= 8 }}))
	p := make([]byte, 4)
	require.True(t, w.Read(4, p))
	require.Equal(t, "4567", string(p))
	require.False(t, w.Read(5, p))
	require.False(t, w.Write(5, p))
	require.False(t, w.Same(8, []byte("8")))
	require.Equal(t, "0123456789abcdef", string(mem))
}

// fakeCard is a card's table of mappings.
type fakeCard struct{ card.Mappings }

func (c *fakeCard) MapDMA(addr uint64, m card.Mapping) error { return c.Map(addr, m) }
func (c *fakeCard) UnmapDMA(addr, n uint64)                  { c.Unmap(addr, n) }

// TestMappings compares three guests' windows and their card's table with flat models of their
// memory. Mappings overlap, touch, reach beyond a window and are taken back in parts.
func TestMappings(t *testing.T) {
	const page, pages = 16, 24 // the last ones of each window
	type cell struct {
		mem   *byte
		owner int // of the mapping it is in
		write bool
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &fakeCard{}
		b := New(3, c)
		first := b.Size() - pages*page
		var model [3][pages + 8]cell
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		for step := range draw("steps", 30) {
			i, at, n := draw("guest", 3), draw("page", pages+4), draw("pages", 5)
			w, addr := b.Guest(i), first+uint64(at)*page
			cells := model[i][at : at+n]
			write := draw("write", 2) == 0
			switch draw("what", 4) {
			case 0, 1:
				m, logged := card.Mapping{Mem: make([]byte, n*page), Write: write}, false
				m.Wrote = func(off, n uint64) { logged = off == 1 && n == 2 }
				free := true
				for k := range cells {
					free = free && (cells[k].mem == nil || at+k >= pages)
				}
				require.Equal(t, free, w.MapDMA(addr, m) == nil)
				for k := range cells {
					if free && at+k < pages {
						cells[k] = cell{&m.Mem[k*page], step + 1, write}
					}
				}
				if free && n > 0 && at < pages {
					require.Equal(t, write, w.Write(addr+1, []byte{byte(step), 2}))
					require.Equal(t, write, logged)
				}
			case 2:
				w.UnmapDMA(addr, uint64(n*page))
				for _, gone := range append([]cell(nil), cells...) {
					for k := range model[i] {
						if gone.owner != 0 && model[i][k].owner == gone.owner {
							model[i][k] = cell{}
						}
					}
				}
			case 3:
				all := true
				for k := range cells {
					all = all && cells[k].mem != nil && (!write || cells[k].write)
				}
				require.Equal(t, all, w.Covers(addr, uint64(n*page), write))
				p := make([]byte, n*page)
				if write {
					require.Equal(t, all, w.Write(addr, p))
				} else {
					require.Equal(t, all, w.Read(addr, p))
				}
				require.Equal(t, all, w.Same(addr, p) && w.Covers(addr, uint64(n*page), write))
			}
			for i := range model {
				for k, want := range model[i][:pages] {
					for _, write := range []bool{false, true} {
						m, off := c.At(b.At(i, first+uint64(k)*page), write)
						require.Equal(t, want.mem != nil && (!write || want.write), m != nil)
						require.True(t, m == nil || &m.Mem[off] == want.mem)
					}
				}
			}
		}
	})
}
