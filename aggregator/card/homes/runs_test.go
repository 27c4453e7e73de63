package homes

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/homes/homestest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// fakeCard is the owner of a Set.
type fakeCard struct{ *homestest.Memory }

func (c *fakeCard) ReadTable(_ shadowpt.Target, addr uint64, p []byte) bool {
	c.Read(addr, p)
	return true
}

func (c *fakeCard) SameTable(_ shadowpt.Target, addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	c.Read(addr, now)
	return slices.Equal(now, p)
}

func (c *fakeCard) Still(do func())     { do() }
func (c *fakeCard) Direct(uint64, bool) {}

// runsOf counts runs by looking at every page.
func runsOf(s *Set, pages uint32) (n int64) {
	last := own
	for page := range pages {
		at := s.plan.home(page)
		if at != own && (last == own || at != last+1 || !s.sameKind(last, at)) {
			n++
		}
		last = at
	}
	return n
}

// newRunsSet makes windows of 32 pages in BAR3 and as many in BAR1.
func newRunsSet(t require.TestingT, pages uint32, l Limits) (*Set, *fakeCard, *Stats) {
	const window = 32 << pageShift
	c, stats := &fakeCard{homestest.New(uint64(pages) << pageShift)}, new(Stats)
	for page := range pages {
		binary.LittleEndian.PutUint32(c.Bytes[page<<pageShift:], page+1)
	}
	s, err := New(Config{Map: MapBAR1 | MapBAR3, BAR1: window, BAR3: window, VRAM: uint64(pages) << pageShift, Limits: l}, c, stats)
	require.NoError(t, err)
	return s, c, stats
}

// TestRunsStayWithinTheirLimit: whatever places show, one after the other, pages lie in no
// more runs than the limit, and are shown at no more other places than theirs; one trap moves
// no more than its limit in and as many out, and every page has its bytes: those of the
// processor's stores to places that show the page, too, and in no other place anything. Who waits comes to an end.
func TestRunsStayWithinTheirLimit(t *testing.T) {
	const pages = 64
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Runs: rapid.IntRange(1, 9).Draw(t, "runs"), Moves: rapid.IntRange(1, 40).Draw(t, "moves"),
			Replicas: rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "replicas"),
		}
		s, c, stats := newRunsSet(t, pages, limits)
		defer func() { require.NoError(t, s.Close()) }()
		want := make(map[uint32]uint32)
		for page := range uint32(pages) {
			want[page] = page + 1
		}
		trap := func(f func()) {
			stats.MostEntered.Store(0)
			stats.MostLeft.Store(0)
			s.Glance()
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
			require.LessOrEqual(t, stats.MostEntered.Load(), int64(limits.Moves))
			require.LessOrEqual(t, stats.MostLeft.Load(), int64(limits.Moves))
			require.LessOrEqual(t, stats.Runs.Load(), int64(limits.Runs))
			require.LessOrEqual(t, len(s.order), limits.Replicas)
			require.Equal(t, runsOf(s, pages), stats.Runs.Load())
		}
		serial := uint32(1000)
		places := int(s.plan.base[Kinds])
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			trap(func() {
				s.reconcile(pageSize)
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					at := rapid.IntRange(0, places-1).Draw(t, "place")
					n := rapid.SampledFrom([]int{1, 1, 1, 8, 32, 64}).Draw(t, "places")
					step := rapid.IntRange(1, 3).Draw(t, "step") // every, or every other
					page := rapid.IntRange(-20, pages-1).Draw(t, "page")
					readOnly := rapid.IntRange(0, 6).Draw(t, "read-only") == 0
					for i := 0; i < n && at+i < places; i += step {
						e := nothing
						if page >= 0 {
							e = shows(uint32(page+i)%pages, readOnly)
						}
						s.plan.show(place(at+i), e)
					}
				}
				s.apply()
			})
			if rapid.Bool().Draw(t, "more before it is done") {
				continue
			}
			for looks := 0; s.Pending(); looks++ {
				require.Less(t, looks, 20*pages, "it does not end")
				trap(func() {})
			}
			func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				for at := range place(places) { // a processor stores where it may
					page, ok := s.plan.shows[at].page()
					exact := ok && (s.plan.home(page) == at || s.replicas[at] != nil && s.replicas[at].page == page)
					if !exact {
						require.Zero(t, binary.LittleEndian.Uint32(s.bytes(at)), "place %d, which is of no page", at)
					} else {
						require.Equal(t, want[page], binary.LittleEndian.Uint32(s.bytes(at)), "page %d at %d", page, at)
						if s.plan.showing(page, at) && rapid.IntRange(0, 3).Draw(t, "store") == 0 {
							serial++
							want[page] = serial
							binary.LittleEndian.PutUint32(s.bytes(at), serial)
							s.reconcile(pageSize)
						}
					}
				}
				p := make([]byte, 4)
				for page := range uint32(pages) {
					c.Read(uint64(page)<<pageShift, p)
					require.Equal(t, want[page], binary.LittleEndian.Uint32(p), "page %d", page)
				}
			}()
		}
		require.Zero(t, stats.MovesRefused.Load())
	})
}

// naiveLeave is leave's twin: it knows where each page lives, and finds runs by going
// through all of them. It returns the pages that went along and are still shown.
func naiveLeave(homes map[uint32]place, together func(a, b place) bool, leaving []uint32, limit int) (refused int) {
	type span struct{ from, to uint32 } // to is behind it
	runs := func() (list []span) {
		for _, page := range slices.Sorted(maps.Keys(homes)) {
			if n := len(list); n > 0 && list[n-1].to == page && together(homes[page-1], homes[page]) {
				list[n-1].to++
				continue
			}
			list = append(list, span{page, page + 1})
		}
		return list
	}
	var pieces []span
	for _, page := range leaving {
		if n := len(pieces); n > 0 && pieces[n-1].to == page {
			pieces[n-1].to++
			continue
		}
		pieces = append(pieces, span{page, page + 1})
	}
	gone := func(p span) {
		for page := p.from; page < p.to; page++ {
			delete(homes, page)
		}
	}
	leaves := func(p span) bool { // if there are not too many runs then
		kept := maps.Clone(homes)
		before := len(runs())
		gone(p)
		if n := len(runs()); n > limit && n > before {
			for page, at := range kept {
				homes[page] = at
			}
			return false
		}
		return true
	}
	var split []span
	for _, p := range pieces {
		if !leaves(p) {
			split = append(split, p)
		}
	}
	for _, p := range split {
		if leaves(p) {
			continue
		}
		for _, r := range runs() {
			if r.from > p.from || r.to < p.to {
				continue
			}
			along := span{r.from, p.from}
			if r.to-p.to < p.from-r.from {
				along = span{p.to, r.to}
			}
			for page := along.from; page < along.to; page++ {
				if _, ok := homes[page]; ok && !slices.Contains(leaving, page) {
					refused++
				}
			}
			gone(along)
		}
		gone(p)
	}
	return refused
}

// TestLeaveEqualsNaive: of pages that leave, those go along that have to, and no others.
func TestLeaveEqualsNaive(t *testing.T) {
	const pages = 64
	rapid.Check(t, func(t *rapid.T) {
		s, _, stats := newRunsSet(t, pages, Limits{})
		defer func() { require.NoError(t, s.Close()) }()
		s.mu.Lock()
		defer s.mu.Unlock()
		page := 0
		for at := 0; at < int(s.plan.base[Kinds]) && page < pages-1; at++ { // runs, and gaps on both sides
			switch rapid.IntRange(0, 12).Draw(t, "gap") {
			case 0:
				page++
			case 1:
				continue
			}
			s.plan.show(place(at), shows(uint32(page), false))
			page++
		}
		s.follow(pages)
		homes := make(map[uint32]place)
		for page := range uint32(pages) {
			if at := s.plan.home(page); at != own {
				homes[page] = at
			}
		}
		s.cfg.Runs = rapid.IntRange(1, int(stats.Runs.Load())+3).Draw(t, "limit")
		var leaving []uint32
		for _, page := range slices.SortedFunc(maps.Keys(homes), cmp.Compare) {
			if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
				leaving = append(leaving, page)
				s.plan.show(homes[page], nothing)
			}
		}
		refused := naiveLeave(homes, func(a, b place) bool { return a+1 == b && s.sameKind(a, b) }, leaving, s.cfg.Runs)
		s.follow(pages)
		require.False(t, s.pending.Load(), "all fit into one step")
		for page := range uint32(pages) {
			want, ok := homes[page]
			if !ok {
				want = own
			}
			require.Equal(t, want, s.plan.home(page), "page %d", page)
		}
		require.EqualValues(t, refused, stats.RunsRefused.Load())
	})
}
