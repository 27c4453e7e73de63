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

// newNumberedSet makes windows of a card whose pages begin with their numbers plus one.
func newNumberedSet(t require.TestingT, cfg Config) (*Set, *fakeCard, *Stats) {
	c, stats := &fakeCard{homestest.New(cfg.VRAM)}, new(Stats)
	for page := range uint32(cfg.VRAM >> pageShift) {
		binary.LittleEndian.PutUint32(c.Bytes[page<<pageShift:], page+1)
	}
	s, err := New(cfg, c, stats)
	require.NoError(t, err)
	return s, c, stats
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
		const window = 32 << pageShift
		s, _, stats := newNumberedSet(t, Config{Map: MapBAR1 | MapBAR3, BAR1: window, BAR3: window, VRAM: pages << pageShift})
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
