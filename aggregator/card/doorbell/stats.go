package doorbell

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stats counts what a Poller did. Every counter may be read at any time.
type Stats struct {
	Looks  atomic.Uint64
	Wakes  atomic.Uint64 // times that somebody had a reason for a look
	Rings  atomic.Uint64 // doorbells found
	Sleeps atomic.Uint64 // times that there was nothing to look at
	CPU    atomic.Int64  // ns of a processor that the poller took, as of a moment ago

	reactions [buckets]atomic.Uint64
}

// Reactions are counted in buckets of a quarter of a power of two.
const buckets = 4 * 44

func bucket(d time.Duration) int {
	n := uint64(max(d, 4))
	e := bits.Len64(n) - 3
	return min(e*4+int(n>>e)&3, buckets-1)
}

// edge is the least time that is too long for a bucket.
func edge(b int) time.Duration { return time.Duration(4+b%4+1) << (b / 4) }

// reacted counts rings that were found d after the look before at most.
func (s *Stats) reacted(d time.Duration, rings int) {
	s.Rings.Add(uint64(rings))
	s.reactions[bucket(d)].Add(uint64(rings))
}

// Reaction returns a bound on the time from a doorbell to its ring that the share q
// of all have kept; 0 if there was none.
func (s *Stats) Reaction(q float64) time.Duration {
	var counts [buckets]uint64
	total := uint64(0)
	for i := range counts {
		counts[i] = s.reactions[i].Load()
		total += counts[i]
	}
	left := uint64(float64(total) * q)
	for i, n := range counts {
		if n > 0 && n >= left {
			return edge(i)
		}
		left -= n
	}
	return 0
}
