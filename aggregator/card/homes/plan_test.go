package homes

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive is the planner's twin: it keeps what each place shows and where each page
// lives, and finds out everything else by looking at all of it.
type naive struct {
	base  [Kinds + 1]place
	shows map[place]entry
	homes map[uint32]place
}

func (n *naive) kind(at place) Kind {
	for k := range Kinds {
		if at < n.base[k+1] {
			return Kind(k)
		}
	}
	panic("no such place")
}

// wanted goes through all places, the strongest first.
func (n *naive) wanted(page uint32) place {
	var list []place
	for at, e := range n.shows {
		if e == shows(page, false) {
			list = append(list, at)
		}
	}
	if len(list) == 0 {
		return own
	}
	slices.Sort(list)
	if home, ok := n.homes[page]; ok && slices.Contains(list, home) && n.kind(home) == n.kind(list[0]) {
		return home
	}
	return list[0]
}

// move brings every page to where it belongs, and returns the moves.
func (n *naive) move(pages uint32) (list []change) {
	for page := range pages {
		from, ok := n.homes[page]
		if !ok {
			from = own
		}
		to := n.wanted(page)
		if to == from {
			continue
		}
		list = append(list, change{page, from, to})
		delete(n.homes, page)
		if to != own {
			n.homes[page] = to
		}
	}
	return list
}

// TestPlannerEqualsNaive: whatever places show, one after the other, the planner moves
// the pages that have to move, to where they have to be, and no others.
func TestPlannerEqualsNaive(t *testing.T) {
	const pages = 12
	sizes := [Kinds]uint32{3, 5, 6, 4}
	rapid.Check(t, func(t *rapid.T) {
		p := newPlanner(sizes)
		n := &naive{base: p.base, shows: map[place]entry{}, homes: map[uint32]place{}}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 8).Draw(t, "changes") {
				at := place(rapid.IntRange(0, int(p.base[Kinds])-1).Draw(t, "place"))
				e := nothing
				if page := rapid.IntRange(-2, pages-1).Draw(t, "page"); page >= 0 {
					e = shows(uint32(page), rapid.IntRange(0, 4).Draw(t, "read-only") == 0)
				}
				p.show(at, e)
				n.shows[at] = e
			}
			changes, _, _ := p.plan(nil, 1<<30)
			slices.SortFunc(changes, func(a, b change) int { return int(a.page) - int(b.page) })
			require.Equal(t, n.move(pages), append([]change(nil), changes...))
			for _, c := range changes {
				if c.from != own {
					p.moved(c.page, own)
				}
			}
			for _, c := range changes {
				p.moved(c.page, c.to)
			}
			sound(t, p, n, pages)
		}
	})
}

// sound holds the planner's lists against what the twin knows.
func sound(t *rapid.T, p *planner, n *naive, pages uint32) {
	for page := range pages {
		home, ok := n.homes[page]
		if !ok {
			home = own
		}
		require.Equal(t, home, p.home(page))
		if ok {
			require.Equal(t, page+1, p.lodger[home])
		}
		var want, got []place
		for at, e := range n.shows {
			if x, ok := e.page(); ok && x == page && at != home {
				want = append(want, at)
			}
		}
		p.others(page, func(at place) { got = append(got, at) })
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got)
	}
	lodgers := 0
	for _, l := range p.lodger {
		if l != 0 {
			lodgers++
		}
	}
	require.Len(t, n.homes, lodgers)
	for page, s := range p.pages {
		require.False(t, s.touched)
		require.False(t, s.first == own && s.home == own, "page %d is kept for nothing", page)
	}
}
