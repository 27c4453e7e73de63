package aggregator

import (
	"fmt"

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
	extents := g.seams()
	want := l.Pieces() + extents
	most := g.agg.piecesFor(g, c.Pieces())
	if least := min(want, 2*leastRuns+extents); most < least {
		return fmt.Errorf("aggregator: guest %s: of the %d pieces that the card's memory may lie in the other guests leave %d, and windows need %d: "+
			"raise vm.max_map_count, or lower limits.map-runs", g.name, c.Pieces(), max(most, 0), least)
	}
	g.pieces = min(want, most)
	l.FitPieces(g.pieces - extents)
	return nil
}

// piecesFor is how many of all pieces guest g can have. Aggregator.mu is held.
func (a *Aggregator) piecesFor(g *Guest, all int) int {
	toCome, sharing, taken := a.opts.Guests-1, 1, 0
	for _, o := range a.guests {
		if o == nil || o == g {
			continue
		}
		toCome--
		taken += o.pieces
		if o.pieces > 0 || o.mayOpen() {
			sharing++
		}
	}
	all -= toCome * min(2*leastRuns+2, all/a.opts.Guests)
	left := all - taken
	for _, o := range a.guests {
		if o != nil && o != g && o.mayOpen() {
			left -= min(o.mapLimits().Pieces()+o.seams(), all/sharing)
		}
	}
	return left
}

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
