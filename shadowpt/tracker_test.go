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

var found int // in all programs

func trackerEqualsRebuild(t *rapid.T) {
	p := newProgram(t, rapid.Uint64().Draw(t, "seed"))
	require.Empty(t, p.run(rapid.SampledFrom([]int{150, 10}).Draw(t, "steps")))
	for len(p.spaces) > 0 {
		p.leave()
	}
	for at, n := range p.w.tables {
		require.Zero(t, n, "table at %#x is not given back", at)
	}
	found += p.found
}

// TestTrackerEqualsRebuild: for any operations of guests, engines and clients, at each
// flush point the updated shadows equal rebuilt ones. Walked by the card, they are the guest's
// tables composed with where the guest's memory lies.
func TestTrackerEqualsRebuild(t *testing.T) {
	rapid.Check(t, trackerEqualsRebuild)
	require.NotZero(t, found)
}

func FuzzTrackerEqualsRebuild(f *testing.F) { f.Fuzz(rapid.MakeFuzz(trackerEqualsRebuild)) }

// TestTablesThatChangeWhileRead: for any concurrent writes of a guest to its tables, the card's stay
// inside: each entry is checked in the one copy that was made.
func TestTablesThatChangeWhileRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t, rapid.Uint64().Draw(t, "seed"))
		for range 100 {
			p.step()
		}
		p.w.mutate = func() {
			for range 100 {
				m, at := p.somewhere()
				if mem := p.w.memory(m); at+8 <= uint64(len(mem)) {
					put(mem, at, p.pte())
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
					if page, _, ok := shadowpt.Walk(p.w, shadowpt.Space{Dir: sp.s.Dir(), Limit: shadowpt.VASize - 1}, p.va()); ok {
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
		w := newTwin(t, 1<<20)
		tr := shadowpt.NewTracker(w, w, shadowpt.NewWork(0), pages*shadowpt.SmallPage, 0)
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
	w := newTwin(t, 1<<20)
	put(w.vram, 0, shadowpt.PDE{Small: small(table)}.Encode())
	work := shadowpt.NewWork(1 << 62)
	tr := shadowpt.NewTracker(w, w, work, twinVRAM, 1<<40)
	s, ok := shadowpt.NewShadow(w, w, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	require.True(t, ok)
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
	w := newTwin(t, 1<<20)
	put(w.vram, 0, shadowpt.PDE{Small: small(table)}.Encode())
	put(w.vram, table, shadowpt.PTE{Valid: true, Addr: written}.Encode())
	work := shadowpt.NewWork(1 << 62)
	tr := shadowpt.NewTracker(w, w, work, twinVRAM, 1<<40)
	s, ok := shadowpt.NewShadow(w, w, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	require.True(t, ok)
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
