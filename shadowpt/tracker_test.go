package shadowpt_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// reporter is a test of any kind.
type reporter = require.TestingT

// seen is what all programs of a format found.
type seen struct {
	found, sparse, refused int
	sizes                  map[uint64]int
}

func (s *seen) trackerEqualsRebuild(t *rapid.T, sh shape) {
	p := newProgram(t, sh, rapid.Uint64().Draw(t, "seed"))
	require.Empty(t, p.run(rapid.SampledFrom([]int{150, 10}).Draw(t, "steps")))
	for len(p.spaces) > 0 {
		p.leave()
	}
	nodes, placed := p.work.Used()
	require.Zero(t, nodes)
	require.Zero(t, placed)
	s.found += p.found
	s.sparse += p.sparse
	s.refused += p.refused
	for size, n := range p.sizes {
		s.sizes[size] += n
	}
}

// TestTrackerEqualsRebuild: for any operations of guests, engines and clients, at each
// flush point the updated shadows equal rebuilt ones. Walked by the card, they are the guest's
// tables composed with where the guest's memory lies.
func TestTrackerEqualsRebuild(t *testing.T) {
	for _, sh := range shapes {
		t.Run(sh.format.Name, func(t *testing.T) {
			s := seen{sizes: make(map[uint64]int)}
			rapid.Check(t, func(t *rapid.T) { s.trackerEqualsRebuild(t, sh) })
			require.NotZero(t, s.found)
			require.NotZero(t, s.refused)
			require.Contains(t, s.sizes, sh.format.Pages[0].Span())
			require.Contains(t, s.sizes, sh.format.Pages[1].Span())
			if sh.format == shadowpt.Hopper {
				require.NotZero(t, s.sparse)
				require.Contains(t, s.sizes, uint64(2<<20))
			}
		})
	}
}

func FuzzTrackerEqualsRebuild(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		s := seen{sizes: make(map[uint64]int)}
		s.trackerEqualsRebuild(t, rapid.SampledFrom(shapes).Draw(t, "format"))
	}))
}

// TestTablesThatChangeWhileRead: for any concurrent writes of a guest to its tables, the card's stay
// inside: each entry is checked in the one copy that was made.
func TestTablesThatChangeWhileRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t, rapid.SampledFrom(shapes).Draw(t, "format"), rapid.Uint64().Draw(t, "seed"))
		for range 100 {
			p.step()
		}
		p.w.mutate = func() {
			for range 100 {
				m, at := p.somewhere()
				if mem := p.w.memory(m); at+8 <= uint64(len(mem)) {
					put(mem, at, p.pte(&p.rnd))
				}
			}
		}
		for range 2 {
			p.t.UpdateAll()
			for _, sp := range p.spaces {
				if p.full {
					sp.s.Rebuild()
				}
				for range 100 {
					if page, ok := sp.card.walk(p.va(&p.rnd)); ok && page.Valid {
						p.w.inside(page)
					}
				}
			}
		}
	})
}

// TestLinesOfAWrite: a write marks exactly the lines of its bytes, in pages with tables.
func TestLinesOfAWrite(t *testing.T) {
	const pages = 200
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		tr := shadowpt.NewTracker(w, shadowpt.NewWork(shadowpt.Fermi, 0, 0), pages*shadowpt.SmallPage, 0)
		tables := make(map[uint64]bool)
		for _, p := range rapid.SliceOfN(rapid.Uint64Range(0, pages-1), 1, 20).Draw(t, "tables") {
			tr.Heed(p)
			tables[p] = true
		}
		at := rapid.Uint64Range(0, (pages+1)*shadowpt.SmallPage).Draw(t, "at")
		n := rapid.OneOf(rapid.Uint64Range(0, 200), rapid.Uint64Range(0, pages*shadowpt.SmallPage),
			rapid.Just(uint64(math.MaxUint64))).Draw(t, "n")
		tr.Wrote(at, n)
		for p := range uint64(pages) {
			want := uint64(0)
			for line := range uint64(64) {
				first := p*shadowpt.SmallPage + line*shadowpt.LineSize
				if tables[p] && n > 0 && at < first+shadowpt.LineSize && (first <= at || first-at < n) {
					want |= 1 << line
				}
			}
			require.Equal(t, want, tr.Written(p), "page %d", p)
		}
	})
}

// TestLastStore: a page that is trapped again while others are examined is examined once
// more, also if a trap had reported it before.
func TestLastStore(t *testing.T) {
	const table = shadowpt.SmallTableSize
	w := newTwin(t)
	put(w.vram, 0, shadowpt.PDE{Small: small(table)}.Encode())
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	s, _ := newShadow(t, w, work)
	tr.Follow(s)
	tr.Untrapped(table, shadowpt.SmallPage, true)
	tr.Wrote(table, 2*shadowpt.SmallPage)
	reads := 0
	w.mutate = func() {
		if reads++; reads == 2 { // the first page has been compared, the second is next
			put(w.vram, table, shadowpt.PTE{Valid: true, ReadOnly: true, Addr: 1 << 12}.Encode())
			tr.Untrapped(table, shadowpt.SmallPage, false)
		}
	}
	tr.UpdateAll()
	require.Equal(t, 2, reads)
	tr.UpdateAll()
	require.Equal(t, uint64(1), tr.Counts.Changed)
}

// TestRemovedEntryIsUsed: until the card has finished an invalidate, engines may write a table
// through an entry that was removed.
func TestRemovedEntryIsUsed(t *testing.T) {
	const table, written = shadowpt.SmallTableSize, shadowpt.SmallTableSize + shadowpt.SmallPage
	w := newTwin(t)
	put(w.vram, 0, shadowpt.PDE{Small: small(table)}.Encode())
	put(w.vram, table, shadowpt.PTE{Valid: true, Addr: written}.Encode())
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(w, work, twinVRAM, 1<<40)
	s, _ := newShadow(t, w, work)
	tr.Follow(s)
	put(w.vram, table, 0)
	tr.Wrote(table, 8)
	for range 3 {
		tr.UpdateAll()
	}
	before := tr.Counts.Changed
	put(w.vram, written, shadowpt.PTE{Valid: true, ReadOnly: true, Addr: 1 << 12}.Encode())
	tr.UpdateAll()
	require.Equal(t, before+1, tr.Counts.Changed)
	put(w.vram, written, 0)
	tr.Release()
	tr.UpdateAll() // a last time
	require.Equal(t, before+2, tr.Counts.Changed)
}
