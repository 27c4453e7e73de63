package aggregator

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// The card's memory takes mappings of the process, which all guests share. A guest has its part
// while its windows are open. It gets the size that it requests, as long as a useful minimum is
// left for each other possible guest.

// leastMappings are those of 64 runs, and two more because of the guest's extents.
const leastMappings = 2*64 + 2

// takeMappings takes the guest's part, and lowers the limit on its runs to that.
func (g *Guest) takeMappings(l *aperture.Limits) error {
	a := g.agg
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.gpu.Relocator().MaxMappings()
	least := min(leastMappings, all/a.opts.Guests)
	left := all - (a.opts.Guests-1)*least
	for _, o := range a.guests {
		if o != nil && o != g {
			left -= max(o.mappings-least, 0)
		}
	}
	extents := 2 * len(g.extents.List())
	l.FitMappings(1 << 30) // fills in the defaults
	want := 2*l.Runs + extents
	if need := min(want, leastMappings-2+extents); left < need {
		return fmt.Errorf("aggregator: guest %s: of %d mappings of the card's memory the other guests leave %d, and windows need %d: "+
			"raise vm.max_map_count, or lower limits.map-runs", g.name, all, max(left, 0), need)
	}
	g.mappings = min(want, left)
	l.FitMappings(g.mappings - extents)
	return nil
}

// giveMappings gives the part back.
func (g *Guest) giveMappings() {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	g.mappings = 0
}
