package window

import (
	"fmt"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// Quota shares the mappings of the process among the guests whose windows are open: the card's
// memory takes one for each piece of pages that are together in one place. A guest gets the size
// that it requests, as long as a useful minimum is left for each other possible guest.
type Quota struct {
	all    int // mappings that the card may use
	guests int // that there may be

	mu    sync.Mutex
	taken map[*BARs]int
}

// NewQuota shares so many mappings among so many guests.
func NewQuota(all, guests int) *Quota {
	return &Quota{all: all, guests: guests, taken: make(map[*BARs]int)}
}

// leastMappings are those of 512 runs, and two more because of the guest's extents. A stock guest had 65 runs with one
// Vulkan client (Linux 7.2, Mesa 26): each client's page tables are pages of BAR3 in any order.
const leastMappings = 2*512 + 2

// take takes a guest's part, and lowers the limit on its runs to that. Each of its extents may
// take two mappings besides.
func (q *Quota) take(w *BARs, extents int, l *aperture.Limits) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	least := min(leastMappings, q.all/q.guests)
	left := q.all - (q.guests-1)*least
	for o, n := range q.taken {
		if o != w {
			left -= max(n-least, 0)
		}
	}
	extents *= 2
	l.FitMappings(1 << 30) // fills in the defaults
	want := 2*l.Runs + extents
	if need := min(want, leastMappings-2+extents); left < need {
		return fmt.Errorf("of %d mappings of the card's memory the other guests leave %d, and windows need %d: "+
			"raise vm.max_map_count, or lower limits.map-runs", q.all, max(left, 0), need)
	}
	q.taken[w] = min(want, left)
	l.FitMappings(q.taken[w] - extents)
	return nil
}

// give gives a guest's part back.
func (q *Quota) give(w *BARs) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.taken, w)
}
