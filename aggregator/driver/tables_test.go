package driver

import (
	"bytes"
	"encoding/binary"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// slab is memory for tables.
type slab struct {
	t     require.TestingT
	bytes []byte
	free  vram.Allocator
}

func newSlab(t require.TestingT, n int) *slab {
	s := &slab{t: t, bytes: make([]byte, n)}
	s.free.Release(card.Run{Size: uint64(n)})
	return s
}

func (s *slab) take(n uint64) (uint64, bool) {
	r, ok := s.free.Take(vram.WholePages(n), vram.PageSize)
	return r.Addr, ok
}

func (s *slab) giveBack(addr, n uint64) {
	n = vram.WholePages(n)
	require.True(s.t, bytes.Equal(s.bytes[addr:addr+n], make([]byte, n)), "the table at %#x is not zero", addr)
	s.free.Release(card.Run{Addr: addr, Size: n})
}

func (s *slab) write(addr uint64, p []byte) { copy(s.bytes[addr:], p) }

func (s *slab) Read64(_ shadowpt.Target, addr uint64) (uint64, bool) {
	return binary.LittleEndian.Uint64(s.bytes[addr:]), true
}

// A slab is also the memory of a guest, which has all of VRAM.

func (s *slab) ReadTable(_ shadowpt.Target, addr uint64, p []byte) bool {
	return copy(p, s.bytes[addr:]) == len(p)
}
func (s *slab) SameTable(_ shadowpt.Target, addr uint64, p []byte) bool {
	return bytes.HasPrefix(s.bytes[addr:], p)
}
func (s *slab) SameTables(parts []shadowpt.Part) {
	for i := range parts {
		parts[i].Same = s.SameTable(parts[i].Target, parts[i].Addr, parts[i].Bytes)
	}
}
func (s *slab) Translate(_ shadowpt.Target, addr, _ uint64, _ bool) (uint64, bool) { return addr, true }

// TestRoomIsUsed: of pages that continue one another over more tables than fit, as many are mapped as
// there is room for, at once and after an invalidate frees some.
func TestRoomIsUsed(t *testing.T) {
	const tables, room = 5, 2
	f := shadowpt.Fermi
	g, s := newSlab(t, shadowpt.DirSize+tables*shadowpt.SmallTableSize), newSlab(t, shadowpt.DirSize+room*shadowpt.SmallTableSize)
	sp, work := newSpace(s, f), shadowpt.NewWork(f, 1<<40, 1<<40)
	tr := shadowpt.NewTracker(g, work, uint64(len(g.bytes)), 1<<40)
	for i := range uint64(tables * shadowpt.SmallEntries) {
		at := shadowpt.DirSize + i*8
		binary.LittleEndian.PutUint64(g.bytes[at:], shadowpt.PTE{Valid: true, ReadOnly: true, Addr: i << 12}.Encode())
		if i%shadowpt.SmallEntries == 0 {
			binary.LittleEndian.PutUint64(g.bytes[i/shadowpt.SmallEntries*8:], shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: at}}.Encode())
		}
	}
	mapped := func() (n int) {
		for i := range uint64(tables) {
			for _, va := range []uint64{i * shadowpt.DirSpan, (i+1)*shadowpt.DirSpan - 1} {
				if _, _, ok := f.Walk(s, shadowpt.Space{Dir: sp.root.addr, Limit: f.VASize() - 1}, va); ok {
					n++
				}
			}
		}
		return n / 2
	}
	shadow := shadowpt.NewShadow(g, sp, work, shadowpt.Space{Limit: f.VASize() - 1})
	tr.Follow(shadow)
	require.Equal(t, room, mapped())
	clear(g.bytes[:8])
	tr.Wrote(0, 8)
	tr.Update(shadow)
	require.Equal(t, room-1, mapped(), "a walk may be inside")
	sp.freeRetired()
	tr.Release()
	tr.Update(shadow)
	require.Equal(t, room, mapped())
}

// TestTablesShowChanges: for any exact changes, in any format, a walk of the tables finds the pages that
// are mapped, and no others. What does not fit changes nothing. Tables without pages are given back
// after an invalidate, empty.
func TestTablesShowChanges(t *testing.T) {
	for _, f := range []*shadowpt.Format{shadowpt.Fermi, shadowpt.Hopper} {
		t.Run(f.Name, func(t *testing.T) {
			refused := 0
			rapid.Check(t, func(t *rapid.T) { refused += tablesShowChanges(t, f) })
			require.NotZero(t, refused)
		})
	}
}

func tablesShowChanges(t *rapid.T, f *shadowpt.Format) (refused int) {
	last := f.Dirs[len(f.Dirs)-1]
	sizes := []uint64{f.Pages[0].Span(), f.Pages[1].Span()}
	if last.HasPages() {
		sizes = append(sizes, last.Span())
	}
	n := f.Dirs[0].Size() + uint64(len(f.Dirs)-1)*vram.PageSize + 4*f.Pages[1].Size() // directories, and four tables
	s := newSlab(t, int(vram.WholePages(n)))
	all := s.free.Left()
	sp := newSpace(s, f)
	pages := make(map[uint64]shadowpt.Page) // by each small page in them
	walk := func(va uint64) {
		got, _, ok := f.Walk(s, shadowpt.Space{Dir: sp.root.addr, Limit: f.VASize() - 1}, va)
		want, mapped := pages[va&^(shadowpt.SmallPage-1)]
		if mapped != ok || want != got {
			t.Fatalf("%#x: %+v, want %+v", va, got, want)
		}
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		var list []card.Change
		next := maps.Clone(pages)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			if c := drawChange(t, f, sizes, next); c.Size > 0 {
				list = append(list, c)
				enter(next, &c)
			}
		}
		done, err := sp.Apply(list)
		for i := range list[:done] {
			enter(pages, &list[i])
		}
		if done < len(list) {
			require.ErrorIs(t, err, card.ErrTables)
			refused++
		}
		for va := range pages {
			walk(va)
		}
		for range 10 {
			walk(drawVA(t, f))
		}
		if rapid.Bool().Draw(t, "invalidate") {
			sp.freeRetired()
		}
	}
	left := s.free.Left()
	for va, p := range pages {
		if p.VA == va {
			_, err := sp.Apply([]card.Change{{VA: va, Size: p.Size, Page: p.Size}})
			require.NoError(t, err)
		}
	}
	require.Equal(t, left, s.free.Left(), "a walk may be inside")
	sp.freeRetired()
	require.Equal(t, all-vram.WholePages(f.Dirs[0].Size()), s.free.Left())
	sp.Free()
	require.Equal(t, all, s.free.Left())
	return refused
}

// TestTablesRefuse: what the format cannot say is refused, and then nothing is mapped there.
func TestTablesRefuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := shadowpt.Fermi
		s := newSlab(t, 1<<20)
		sp := newSpace(s, f)
		good := card.Change{VA: 1 << 20, Size: 4096, Page: 4096, Flags: shadowpt.Mapped}
		done, err := sp.Apply([]card.Change{good})
		require.Equal(t, []any{1, nil}, []any{done, err})
		bad := good
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			bad.VA = f.VASize() + good.VA
		case 1:
			bad.Page, bad.Size = 64<<10, 64<<10
		case 2:
			bad.Flags = shadowpt.Sparse
		case 3:
			bad.Addr, bad.Flags = 1<<40, shadowpt.Mapped|shadowpt.Over
		case 4:
			bad.Addrs, bad.Flags = []uint64{1 << 40}, shadowpt.Mapped|shadowpt.Over
		}
		_, err = sp.Apply([]card.Change{bad})
		require.Error(t, err)
		_, _, ok := f.Walk(s, shadowpt.Space{Dir: sp.root.addr, Limit: f.VASize() - 1}, good.VA)
		require.Equal(t, bad.Flags&shadowpt.Over == 0, ok)
	})
}

// drawVA draws an address near others.
func drawVA(t *rapid.T, f *shadowpt.Format) uint64 {
	last := f.Dirs[len(f.Dirs)-1].Span()
	far := rapid.SampledFrom([]uint64{0, last, 2 * last, f.VASize() / 2, f.VASize() - last}).Draw(t, "table")
	return far + rapid.SampledFrom([]uint64{0, last - last/8, last / 2}).Draw(t, "part") + rapid.Uint64Range(0, 39).Draw(t, "page")*shadowpt.SmallPage
}

// drawChange draws an exact change, of Size 0 if none is found.
func drawChange(t *rapid.T, f *shadowpt.Format, sizes []uint64, pages map[uint64]shadowpt.Page) card.Change {
	size := rapid.SampledFrom(sizes).Draw(t, "size")
	c := card.Change{VA: drawVA(t, f) &^ (size - 1), Page: size}
	whole := func(va uint64) bool { p, ok := pages[va]; return ok && p.VA == va && p.Size == size }
	over := whole(c.VA)
	for n := rapid.SampledFrom([]uint64{1, 3, 600 / (size / shadowpt.SmallPage)}).Draw(t, "pages"); n > 0 && c.VA+c.Size < f.VASize(); n-- {
		fits := true
		for va := c.VA + c.Size; va < c.VA+c.Size+size; va += shadowpt.SmallPage {
			_, taken := pages[va]
			fits = fits && !taken
		}
		if over {
			fits = whole(c.VA + c.Size)
		}
		if !fits {
			break
		}
		c.Size += size
	}
	if over && rapid.Bool().Draw(t, "unmap") {
		return c
	}
	if c.Flags = shadowpt.Sparse; !f.HasSparse() || rapid.IntRange(0, 3).Draw(t, "sparse") > 0 {
		c.Flags = shadowpt.Mapped | rapid.SampledFrom([]shadowpt.Flags{0, shadowpt.ReadOnly, shadowpt.Supervisor | shadowpt.Volatile}).Draw(t, "flags")
		c.Addr, c.Kind = rapid.Uint64Range(0, 1<<20).Draw(t, "addr")*shadowpt.SmallPage, 3
		c.Target = rapid.SampledFrom([]shadowpt.Target{shadowpt.VRAM, shadowpt.SystemCoherent}).Draw(t, "target")
	}
	if over {
		c.Flags |= shadowpt.Over
	}
	if c.Flags&shadowpt.Mapped != 0 && c.Size > size && rapid.Bool().Draw(t, "scattered") {
		for i := range c.Pages() {
			c.Addrs = append(c.Addrs, c.Addr+i*7%5*shadowpt.SmallPage)
		}
	}
	return c
}

// enter makes a change to the pages.
func enter(pages map[uint64]shadowpt.Page, c *card.Change) {
	for i := range c.Pages() {
		p := shadowpt.Page{VA: c.VA + i*c.Page, Size: c.Page, PTE: c.PTE(i)}
		for va := p.VA; va < p.VA+p.Size; va += shadowpt.SmallPage {
			if pages[va] = p; c.Unmaps() {
				delete(pages, va)
			}
		}
	}
}
