package aggregator

import (
	"fmt"
	"sort"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// The pieces that the card's memory may lie in are mappings of the process, which all
// guests share. A guest has its part of them from when its windows open until they are
// closed, an even part is kept for each that has none open, and the least of use for each
// that may still come: nobody's pages stay where they are because others have theirs in
// many pieces.

// leastRuns is with how few runs windows are of any use.
const leastRuns = 64

// takePieces takes the guest's part, and lowers the limit on its runs to what that is
// enough for.
func (g *Guest) takePieces(l *homes.Limits) error {
	c, ok := g.agg.ctl.card.(card.Pieces)
	if !ok {
		return nil
	}
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	extents, want := g.seams(), g.wanted()
	most := g.agg.piecesFor(g, c.Pieces())
	if least := min(want, 2*leastRuns+extents); most < least {
		return fmt.Errorf("aggregator: guest %s: of the %d pieces that the card's memory may lie in the other guests leave %d, and windows need %d: "+
			"raise vm.max_map_count, or lower limits.map-runs", g.name, c.Pieces(), max(most, 0), least)
	}
	g.pieces = min(want, most)
	l.FitPieces(g.pieces - extents)
	return nil
}

// piecesFor is how many of all pieces guest g can have: what the others have is theirs,
// and each place for a guest has the least of use, whoever is in it. What is left over is
// for g and those that may open theirs too, in parts that are even, but for who wants less.
// Whoever then takes its own leaves the others parts that are no smaller. Aggregator.mu is
// held.
func (a *Aggregator) piecesFor(g *Guest, all int) int {
	least := min(2*leastRuns+2, all/a.opts.Guests)
	left, waiting := all-(a.opts.Guests-1)*least, []*Guest{g}
	for _, o := range a.guests {
		switch {
		case o == nil || o == g:
		case o.mayOpen():
			left += least
			waiting = append(waiting, o)
		default:
			left -= max(o.pieces-least, 0)
		}
	}
	// kept is what the others that wait get where a part is so many.
	kept := func(part int) (n int) {
		for _, o := range waiting[1:] {
			n += max(min(o.wanted(), part), least)
		}
		return n
	}
	part := sort.Search(all, func(part int) bool { return kept(part+1)+part+1 > left })
	return left - kept(part)
}

// wanted is in how many pieces the card's memory may lie at most because of the guest.
func (g *Guest) wanted() int { return g.mapLimits().Pieces() + g.seams() }

// mayOpen reports whether the guest has no windows open, and may have. Aggregator.mu is held.
func (g *Guest) mayOpen() bool { return g.pieces == 0 && g.maps() && !g.removed }

// givePieces gives the part back.
func (g *Guest) givePieces() {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	g.pieces = 0
}

// seams is how many pieces more there can be because the guest's memory is not together on
// the card.
func (g *Guest) seams() int { return 2 * len(g.extents.list) }
