package shadowpt_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// twin is a guest, as plain as can be. The guest has VRAM in pieces on
// the card and RAM with holes; everything else on the card is not its own.
type twin struct {
	vram   []byte // the guest's, by its own addresses
	pieces []int  // page i of the guest's VRAM lies in page pieces[i] of the card
	ram    []byte
	hole   [2]uint64 // of RAM: not mapped
	ro     [2]uint64 // of RAM: not to be written

	// mutate is called before each read of a table.
	mutate func()
	t      require.TestingT
}

const (
	twinVRAM  = 2 << 20
	twinRAM   = 5 << 20
	ramWindow = 5 << 35 // where the card sees the guest's RAM
	cardPages = 4 << 20 / shadowpt.SmallPage
)

func newTwin(t require.TestingT) *twin {
	w := &twin{
		vram: make([]byte, twinVRAM), ram: make([]byte, twinRAM), t: t,
		hole: [2]uint64{0x30000, 0x50000}, ro: [2]uint64{0x80000, 0xa0000}, mutate: func() {},
	}
	// The first MiB lies together, the second in pieces of two pages, backwards.
	for i := range twinVRAM / shadowpt.SmallPage {
		at := 64 + i
		if i >= 256 {
			at = cardPages - 2 - (i-256)/2*3 + i%2
		}
		w.pieces = append(w.pieces, at)
	}
	return w
}

func (w *twin) memory(t shadowpt.Target) []byte {
	switch t {
	case shadowpt.VRAM:
		return w.vram
	case shadowpt.SystemCoherent, shadowpt.SystemNonCoherent:
		return w.ram
	}
	return nil
}

func (w *twin) mapped(addr, n uint64, write bool) bool {
	overlaps := func(r [2]uint64) bool { return addr < r[1] && addr+n > r[0] }
	return addr < twinRAM && n <= twinRAM-addr && !overlaps(w.hole) && !(write && overlaps(w.ro))
}

func (w *twin) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool {
	w.mutate()
	m := w.memory(t)
	if !w.readable(t, addr, uint64(len(p))) {
		copy(p, m[min(addr, uint64(len(m))):]) // p is undefined, as Guest says
		return false
	}
	copy(p, m[addr:])
	return true
}

// SameTable sees the memory as it is before ReadTable changes it once more.
func (w *twin) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return w.ReadTable(t, addr, now) && bytes.Equal(now, p)
}

func (w *twin) SameTables(parts []shadowpt.Part) { sameEach(w, parts) }

func (w *twin) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t.System() {
		return ramWindow + addr, w.mapped(addr, n, write)
	}
	if t != shadowpt.VRAM || addr >= twinVRAM || n > twinVRAM-addr {
		return 0, false
	}
	first := w.pieces[addr>>12]
	for i := range n >> 12 {
		if w.pieces[addr>>12+i] != first+int(i) {
			return 0, false
		}
	}
	return uint64(first)<<12 | addr&0xfff, true
}

func (w *twin) fermiWhere(s shadowpt.Space, va uint64) (at uint64, pte shadowpt.PTE, ok bool) {
	if !w.readable(s.Target, s.Dir, shadowpt.DirSize) {
		return 0, pte, false
	}
	word := func(t shadowpt.Target, addr uint64) uint64 { return binary.LittleEndian.Uint64(w.memory(t)[addr:]) }
	pde := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{word(s.Target, s.Dir+va/shadowpt.DirSpan*8)})
	in := va % shadowpt.DirSpan
	if in >= shadowpt.DirSpan>>pde.Size {
		return 0, pte, false
	}
	for _, l := range []struct {
		shadowpt.Table
		page uint64
	}{{pde.Big, shadowpt.BigPage}, {pde.Small, shadowpt.SmallPage}} {
		// A table counts whole or not at all: what it covers must be the guest's.
		if !l.Present || !w.readable(l.Target, l.Addr, shadowpt.DirSpan/l.page*8>>pde.Size) {
			continue
		}
		if pte = shadowpt.DecodePTE(word(l.Target, l.Addr+in/l.page*8)); pte.Valid {
			at, ok = w.Translate(pte.Target, pte.Addr+va%l.page&^0xfff, shadowpt.SmallPage, !pte.ReadOnly)
			return at | va&0xfff, pte, ok
		}
	}
	return 0, pte, false
}

func (w *twin) readable(t shadowpt.Target, addr, n uint64) bool {
	m := uint64(len(w.memory(t)))
	return addr <= m && n <= m-addr && (!t.System() || w.mapped(addr, n, false))
}

// inside wants an address that the card got to be the guest's.
func (w *twin) inside(p shadowpt.Page) {
	for off := uint64(0); off < p.Size; off += shadowpt.SmallPage {
		at := p.Addr + off
		if p.Target.System() {
			require.Equal(w.t, uint64(5), at>>35)
			require.True(w.t, w.mapped(at&(1<<35-1), shadowpt.SmallPage, !p.ReadOnly), "%#x", at)
			continue
		}
		require.Equal(w.t, shadowpt.VRAM, p.Target)
		require.Contains(w.t, w.pieces, int(at>>12), "%#x", at)
	}
}

func put(m []byte, addr, q uint64) { binary.LittleEndian.PutUint64(m[addr:], q) }

func small(addr uint64) shadowpt.Table { return shadowpt.Table{Present: true, Addr: addr} }

func newShadow(t reporter, w *twin, work *shadowpt.Work) (*shadowpt.Shadow, *space) {
	c := newSpace(t, shadowpt.Fermi)
	return shadowpt.NewShadow(w, c, work, shadowpt.Space{Limit: shadowpt.VASize - 1}), c
}

// A guest that names ever more tables costs no more memory and no more reading
// than it has a share of.
func TestWorkAndMemoryAreBounded(t *testing.T) {
	w := newTwin(t)
	for i := uint64(0x10000); i < twinVRAM; i += 8 {
		put(w.vram, i, shadowpt.PTE{Valid: true, Addr: i &^ 0xfff % 0x100000}.Encode())
	}
	for d := range uint64(shadowpt.DirEntries) {
		put(w.vram, d*8, shadowpt.PDE{Small: small(0x10000 + d%256*shadowpt.SmallPage)}.Encode())
	}
	const left = shadowpt.DirSize + 5*2*shadowpt.SmallTableSize + 100 // an entry is read, and mapped
	const quota = 4 * shadowpt.SmallTableSize
	work := shadowpt.NewWork(shadowpt.Fermi, left, quota)
	s, c := newShadow(t, w, work)
	c.room = 2
	s.Rebuild()
	require.LessOrEqual(t, s.Counts.Examined, uint64(left/8))
	require.Len(t, c.parts, 2)
	require.Zero(t, work.Left)
	_, placed := work.Used()
	require.LessOrEqual(t, placed, uint64(quota))
	for va := uint64(0); va < shadowpt.VASize; va += shadowpt.DirSpan {
		if p, ok := c.walk(va); ok {
			w.inside(p)
		}
	}
	c.room, work.Left = 0, left
	s.Rebuild()
	require.Len(t, c.parts, 4, "what was refused is offered again, as far as the quota allows")
}

// TestRoundIsBounded: one table at many places multiplies each of its entries. A round makes no more
// changes than its bound lets it, and unmaps; further rounds do the rest. An entry of the directory
// that goes unmaps its pages alone. Spans without memory for tables are offered once a Release.
func TestRoundIsBounded(t *testing.T) {
	const table, places, entries, left, room = 0x100000, 100, 256, 128 << 10, 10
	w := newTwin(t)
	for i := range uint64(places) {
		put(w.vram, i*8, shadowpt.PDE{Small: small(table)}.Encode())
	}
	work := shadowpt.NewWork(shadowpt.Fermi, 0, 1<<40)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	s, c := newShadow(t, w, work)
	round := func(unmaps int) {
		before := c.changes
		work.Left = left
		tr.UpdateAll()
		require.LessOrEqual(t, c.changes-before, left/8+unmaps)
	}
	write := func(kind uint64) {
		for i := range uint64(entries) {
			put(w.vram, table+i*8, shadowpt.PTE{Valid: kind != 0, Kind: uint8(kind), Addr: (entries - i) << 12}.Encode())
		}
		tr.Wrote(table, entries*8)
	}
	write(1)
	tr.Follow(s)
	require.Empty(t, c.pages)
	for kind := range uint64(3) {
		write(kind + 1)
		round(len(c.pages))
		require.NotZero(t, s.Counts.Cut)
		require.Less(t, len(c.pages), places*entries)
		for range 15 {
			round(0)
		}
		require.Len(t, c.pages, places*entries)
	}
	for i := range uint64(places) {
		at := i * 37 % places
		put(w.vram, at*8, 0)
		tr.Wrote(at*8, 8)
		round(entries)
		require.Len(t, c.pages, int(places-1-i)*entries)
	}

	c.room, work.Left = room, 1<<40
	for i := range uint64(places) {
		put(w.vram, i*8, shadowpt.PDE{Small: small(table)}.Encode())
	}
	tr.Wrote(0, places*8)
	tr.UpdateAll()
	require.Len(t, c.pages, room*entries)
	put(w.vram, 0, 0)
	tr.Wrote(0, 8)
	tr.UpdateAll()
	tr.Release()
	asked := c.refused
	tr.UpdateAll()
	require.Len(t, c.pages, room*entries)
	require.LessOrEqual(t, c.refused-asked, places)
}

// TestLeastChanges: pages that an entry's old and new tables have are not touched, since channels may use
// them. A table for which there was no memory is offered again when others were unmapped.
func TestLeastChanges(t *testing.T) {
	const first, second, bigs = 0x100000, 0x140000, 0x180000
	w := newTwin(t)
	put(w.vram, 0, shadowpt.PDE{Small: small(first)}.Encode())
	put(w.vram, 8, shadowpt.PDE{Small: small(second)}.Encode())
	for i := range uint64(8) {
		put(w.vram, first+i*8, shadowpt.PTE{Valid: true, Addr: i << 12}.Encode())
	}
	put(w.vram, second, shadowpt.PTE{Valid: true}.Encode())
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	s, c := newShadow(t, w, work)
	c.room = 1
	tr.Follow(s)
	require.Len(t, c.pages, 8)
	require.Equal(t, 2, c.changes)

	put(w.vram, 0, shadowpt.PDE{Small: small(first), Big: small(bigs)}.Encode())
	tr.Wrote(0, 8)
	tr.UpdateAll()
	require.Equal(t, 2, c.changes)

	clear(w.vram[first : first+8*8])
	tr.Wrote(first, 8*8)
	tr.UpdateAll()
	require.Equal(t, 3, c.changes)
	tr.Release()
	tr.UpdateAll()
	require.Len(t, c.pages, 1)
	require.Equal(t, 4, c.changes)
}

// TestPartIsRefused: of scattered pages in the ranges of two directory entries, the card has those that it
// does not refuse.
func TestPartIsRefused(t *testing.T) {
	const first, second, entries = 0x100000, 0x140000, 4
	for hole := range uint64(2) {
		w := newTwin(t)
		put(w.vram, 0, shadowpt.PDE{Small: small(first)}.Encode())
		put(w.vram, 8, shadowpt.PDE{Small: small(second)}.Encode())
		for i := range uint64(entries) {
			put(w.vram, first+(shadowpt.SmallEntries-entries+i)*8, shadowpt.PTE{Valid: true, Addr: (i ^ 1) << 12}.Encode())
			put(w.vram, second+i*8, shadowpt.PTE{Valid: true, Addr: (i ^ 3) << 12}.Encode())
		}
		s, c := newShadow(t, w, shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62))
		c.holes = map[uint64]bool{hole: true}
		s.Rebuild()
		require.Equal(t, 3, c.changes, "all, and each part")
		require.Len(t, c.pages, entries)
		for at, p := range c.pages {
			require.Equal(t, 1-hole, at.va/shadowpt.DirSpan)
			want, _, _ := w.fermiWhere(s.Space(), at.va)
			require.Equal(t, want, p.Addr)
		}
	}
}
