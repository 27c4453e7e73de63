package shadowpt_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// slowHopper looks an address up as the format is described, with arithmetic in place of fields.
// read returns a word of a table of a size. The page is an entry, with its size, unless fault
// says why there is none; a sparse one has entry 0.
func slowHopper(read func(target, table, size, at uint64) (uint64, bool), s shadowpt.Space, va uint64) (pte, size uint64, fault string) {
	if va > s.Limit || va >= 1<<57 {
		return 0, 0, "limit"
	}
	aperture := func(q uint64) uint64 { return q / 2 % 4 }
	target := func(q uint64) uint64 { return []uint64{99, 0, 2, 3}[aperture(q)] }
	sparse := func(q uint64) bool { return aperture(q) == 0 && (q/8%8 == 1 || q/8%8 == 3) }
	at, table := uint64(s.Target), s.Dir
	for i, span := range []uint64{1 << 56, 1 << 47, 1 << 38, 1 << 29} {
		entries := uint64(512)
		if i == 0 {
			entries = 2
		}
		q, ok := read(at, table, entries*8, va/span%entries*8)
		switch {
		case ok && q%2 == 0 && sparse(q):
			return 0, span, ""
		case !ok || q%2 == 1 || aperture(q) == 0:
			return 0, 0, "no table"
		}
		at, table = target(q), q%(1<<52)/4096*4096
	}
	double := va / (2 << 20) % 256 * 16
	first, ok := read(at, table, 4096, double)
	second, ok2 := read(at, table, 4096, double+8)
	switch {
	case !ok || !ok2:
		return 0, 0, "no table"
	case first%2 == 1:
		return first, 2 << 20, ""
	case sparse(first):
		return 0, 2 << 20, ""
	case aperture(first) == 0 && aperture(second) == 0:
		return 0, 0, "no table"
	}
	if aperture(first) != 0 {
		if q, ok := read(target(first), first%(1<<52)/256*256, 256, va%(2<<20)/65536*8); ok {
			switch {
			case q%2 == 1:
				return q, 65536, ""
			case q/8%32 == 1:
				return 0, 65536, ""
			case q/8%32 == 3: // not even a small page
				return 0, 0, "no page"
			}
		}
	}
	if aperture(second) != 0 {
		if q, ok := read(target(second), second%(1<<52)/4096*4096, 4096, va%(2<<20)/4096*8); ok {
			switch {
			case q%2 == 1:
				return q, 4096, ""
			case q/8%32 == 1:
				return 0, 4096, ""
			}
		}
	}
	return 0, 0, "no page"
}

// hopperWhere is the oracle of programs. A table counts whole or not at all.
func (w *twin) hopperWhere(s shadowpt.Space, va uint64) (at uint64, pte shadowpt.PTE, ok bool) {
	q, size, fault := slowHopper(func(target, table, size, at uint64) (uint64, bool) {
		if !w.readable(shadowpt.Target(target), table, size) {
			return 0, false
		}
		return binary.LittleEndian.Uint64(w.memory(shadowpt.Target(target))[table+at:]), true
	}, s, va)
	switch {
	case fault != "":
		return 0, pte, false
	case q == 0:
		return 0, shadowpt.PTE{Sparse: true}, true
	}
	pte = shadowpt.PTE{
		Valid: true, Target: shadowpt.Target(q / 2 % 4), Kind: uint8(q / 256 % 16),
		Volatile: q/8%2 == 1, Supervisor: q/16%2 == 1, ReadOnly: q/32%2 == 1, NoAtomics: q/64%2 == 1, ACD: q/128%2 == 1,
	}
	at, ok = w.Translate(pte.Target, q%(1<<52)/4096*4096+va%size/4096*4096, 4096, !pte.ReadOnly)
	return at | va%4096, pte, ok
}

// The tables of Hopper's programs: those of a level are mostly named by the level above. The last
// are of pages, two of them big ones' in the middle of a page.
var hopperPlaces = [][]uint64{
	dirPlaces,
	{0x100000, 0x101000}, {0x102000, 0x103000, 0x100000}, {0x104000, 0x105000, 0x103000}, {0x106000, 0x107000, 0x60000, 0x101000},
	{0x140000, 0x1a0000, 0x60000, 0x106000, 0x140300, 0x141f00, 0x18000, twinVRAM},
}

func hopperLeafAt(r *random) uint64 {
	return pick(r, hopperPlaces[5]...) + pick(r, r.n(32), r.n(64), r.n(512))*8
}

func hopperPTE(r *random) uint64 {
	q := pick(r, uint64(0), 1<<3, 3<<3, r.next()&^1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	if q&1 != 0 {
		q |= pick(r, uint64(0), 0, 2, 3, 3, 1)<<1 | r.n(32)<<3 | r.n(16)<<8 | r.n(6<<20)&^0xfff
	}
	switch {
	case r.one(3):
		q &^= 0xf000
	case r.one(6): // a page that is a table
		q = 1 | tablePage(r)<<12
	case r.one(32):
		q |= r.n(1<<40) << 12
	}
	return q
}

func hopperPDE(p *program, sp *programSpace) {
	r := &p.rnd
	level := int(pick(r, r.n(5), 4))
	at, target := pick(r, hopperPlaces[level]...), shadowpt.VRAM
	if level == 0 {
		at, target = sp.space.Dir, sp.space.Target
	}
	next := func() uint64 {
		if r.one(24) {
			return pick(r, uint64(0), 0, 1<<3, 3<<3, 1, r.next())
		}
		return pick(r, hopperPlaces[level+1]...) | pick(r, uint64(1), 1, 1, 1, 2, 3)<<1
	}
	at += r.n(2) * 8
	if level < 4 {
		p.write(target, at, le(next()))
		return
	}
	at += r.n(2) * 8
	first := next()
	switch r.n(3) {
	case 0:
		first = hopperPTE(r)
		if r.one(2) {
			first = first&^(6<<20|6<<1|0x1ff<<12) | pick(r, uint64(2<<20|2<<1), 2<<20|3<<1, 0)
		}
	case 1:
		first = 0
	}
	p.write(target, at&^15, append(le(first), le(next())...))
}

func hopperVA(r *random) uint64 {
	in := pick(r, r.n(32)<<16, r.n(64)<<12, r.n(512)<<12)
	return r.n(2)<<56 | r.n(2)<<47 | r.n(2)<<38 | r.n(2)<<29 | r.n(2)<<21 | in | r.n(4096)
}

var hopperReasons = map[string]shadowpt.Reason{
	"limit": shadowpt.VMLimitExceeded, "no table": shadowpt.PTNotPresent, "no page": shadowpt.PageNotPresent,
}

func checkHopper(t require.TestingT, m *memory, s shadowpt.Space, va uint64) (size uint64) {
	q, size, fault := slowHopper(func(target, table, _, at uint64) (uint64, bool) {
		return m.Read64(shadowpt.Target(target), table+at)
	}, s, va)
	p, reason, ok := shadowpt.Hopper.Walk(m, s, va)
	require.Equal(t, fault == "", ok, "%#x: %s", va, fault)
	if !ok {
		require.Equal(t, hopperReasons[fault], reason, "%#x", va)
		return 0
	}
	require.Equal(t, []any{size, va / size * size, q == 0}, []any{p.Size, p.VA, p.Sparse})
	if q != 0 {
		require.Equal(t, []uint64{q % (1 << 52) / 4096 * 4096, q / 2 % 4, q / 256 % 16}, []uint64{p.Addr, uint64(p.Target), uint64(p.Kind)})
	}
	return size
}

func TestHopperWalkAgainstSlowWalk(t *testing.T) {
	sizes := make(map[uint64]int)
	rapid.Check(t, func(t *rapid.T) {
		p := &program{shape: shapes[1], w: newTwin(t), rnd: random(rapid.Uint64().Draw(t, "seed")*2 + 1)}
		p.t = shadowpt.NewTracker(p.w, shadowpt.NewWork(shadowpt.Hopper, 0, 0), twinVRAM, 0)
		r := &p.rnd
		s := shadowpt.Space{Dir: pick(r, dirPlaces...), Limit: pick(r, uint64(1<<57-1), 1<<57-1, 1<<47|1<<29, 1<<64-1)}
		for range 300 {
			p.pde(p, &programSpace{space: s})
			p.poke(p.anywhere(), p.pte(r))
		}
		m := &memory{bytes: make(map[uint64]byte), holes: map[uint64]bool{pick(r, hopperPlaces[5]...) >> 12: r.one(2)}}
		for target, b := range map[shadowpt.Target][]byte{shadowpt.VRAM: p.w.vram, shadowpt.SystemCoherent: p.w.ram} {
			for i, v := range b {
				if v != 0 {
					m.bytes[location(target, uint64(i))] = v
				}
			}
		}
		for range 300 {
			sizes[checkHopper(t, m, s, p.va(r)|pick(r, uint64(0), 0, 0, 1<<57))]++
		}
	})
	for _, size := range []uint64{4 << 10, 64 << 10, 2 << 20} {
		require.NotZero(t, sizes[size], "pages of %#x", size)
	}
}

// A walk reads eight words at most, for any tables.
func FuzzHopperWalk(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 2}, uint64(0), uint64(0x1234))
	f.Fuzz(func(t *testing.T, data []byte, dir, va uint64) {
		m := &memory{bytes: map[uint64]byte{}}
		for i, b := range data {
			m.bytes[uint64(i)] = b
			m.bytes[uint64(i)|systemBit] = b
		}
		s := shadowpt.Space{Dir: dir, Limit: ^uint64(0)}
		checkHopper(t, m, s, va)
		m.reads = 0
		shadowpt.Hopper.Walk(m, s, va)
		require.LessOrEqual(t, m.reads, 8)
	})
}

// TestOrphansAreDropped: a directory that no entry names takes what only it names along.
func TestOrphansAreDropped(t *testing.T) {
	w := newTwin(t)
	for level := range uint64(5) {
		put(w.vram, level<<12, (level+1)<<12|1<<1) // the last is a table of big pages
	}
	put(w.vram, 5<<12, 1)
	work := shadowpt.NewWork(shadowpt.Hopper, 1<<40, 1<<40)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	c := newSpace(t, shadowpt.Hopper)
	s := shadowpt.NewShadow(w, c, work, shadowpt.Space{Limit: 1<<57 - 1})
	tr.Follow(s)
	require.Len(t, c.pages, 1)
	require.Equal(t, 5, s.Nodes())
	put(w.vram, 0, 0)
	tr.Wrote(0, 8)
	tr.UpdateAll()
	require.Empty(t, c.pages)
	require.Zero(t, s.Nodes())
}

// TestAliasesAreBounded: directories whose entries all name one table below multiply its pages without
// end. The card gets what the quota allows, either way, and the cost of a change is bounded, too.
func TestAliasesAreBounded(t *testing.T) {
	const quota, leaf = 1 << 20, 5 << 12
	for _, follow := range []bool{false, true} {
		w := newTwin(t)
		for level := range uint64(5) {
			for i := range uint64(512) {
				put(w.vram, level<<12+i*8, (level+1)<<12|1<<1)
			}
		}
		put(w.vram, leaf, 1)
		work := shadowpt.NewWork(shadowpt.Hopper, 1<<40, quota)
		tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
		c := newSpace(t, shadowpt.Hopper)
		s := shadowpt.NewShadow(w, c, work, shadowpt.Space{Limit: 1<<57 - 1})
		update := s.Rebuild
		if update(); follow {
			tr.Follow(s)
			update = tr.UpdateAll
		}
		for i := range uint64(3) {
			_, placed := work.Used()
			require.LessOrEqual(t, placed, uint64(quota))
			require.NotZero(t, s.Counts.Cut)
			require.Greater(t, len(c.pages), quota/shadowpt.SmallPage/3, "most of it is of pages")
			before := c.changes
			put(w.vram, leaf, 1|i<<12)
			tr.Wrote(leaf, 8)
			update()
			require.LessOrEqual(t, c.changes-before, quota/shadowpt.SmallPage)
		}
	}
}

// TestLargePageWritesTables: engines may write tables through a page of 2 MiB that was there before its
// directory was followed, until it is gone and the card has invalidated.
func TestLargePageWritesTables(t *testing.T) {
	const last, leaf = 4 << 12, 5 << 12
	w := newTwin(t)
	for level := range uint64(4) {
		put(w.vram, level<<12, (level+1)<<12|1<<1)
	}
	put(w.vram, last+8, leaf|1<<1)
	put(w.vram, last+16, 1) // all of the memory
	work := shadowpt.NewWork(shadowpt.Hopper, 1<<40, 1<<40)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	c := newSpace(t, shadowpt.Hopper)
	tr.Follow(shadowpt.NewShadow(w, c, work, shadowpt.Space{Limit: 1<<57 - 1}))
	written := func(i uint64) bool {
		put(w.vram, leaf+i*8, 1|1<<5)
		tr.UpdateAll()
		_, ok := c.walk(i << 12)
		return ok
	}
	require.True(t, written(0))
	put(w.vram, last+16, 0)
	tr.UpdateAll()
	require.True(t, written(1), "the card may still use the page")
	tr.Release()
	tr.UpdateAll() // a last time
	require.False(t, written(2))
}
