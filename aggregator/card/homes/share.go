package homes

import "math"

// Gather is Order for what the card is about to read: before it hears of a doorbell, what was
// written to mapped places is brought to where the card finds it. What other places have to
// show of that follows with the next Order, or a moment later.
//
// What one guest has in many places keeps the trap that rings, and who looks at the doorbells
// of many, waiting. So there is as much of it at once as its caller says, and the rest is
// left to somebody who has the time.

// AtOnce is how many bytes of places are compared for a doorbell while others wait: some
// microseconds, and some tens if all of the pages have changed. Pages of USERD that a driver has written through another window too come
// to 64 KiB.
const AtOnce = 96 << 10

// Outcome is what came of something that was to be done within bounds.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota
	Busy            // pages move, or somebody else is at it
	TooMuch         // it would take more than it may; nothing was done
)

// Unbounded is the bound of who looks for one guest alone: what it takes is not counted first.
const Unbounded = math.MaxInt

// Work is what was done of places, in bytes.
type Work struct {
	Compared int // with what they had been
	Merged   int // of these, held against their homes word by word, for something had changed
}

// GatherWithin is GatherAll, if that can be done without waiting and by comparing no more than
// so many bytes of places.
func (s *Set) GatherWithin(most int) (out Outcome, w Work) {
	out = s.within(most, s.toGather, func() { w = s.gather() })
	return out, w
}

// FreshWithin brings to pages of VRAM what was written to other places that show them, within
// the same bounds. It is for pages that a doorbell may be in.
func (s *Set) FreshWithin(most int, addrs []uint64) Outcome {
	if len(addrs) == 0 {
		return Done
	}
	return s.within(most, func(most int) int { return s.toFreshen(most, addrs) }, func() { s.freshPages(addrs) })
}

func (s *Set) within(most int, takes func(most int) int, do func()) Outcome {
	switch {
	case !s.Aliased():
		return Done
	case !s.mu.TryLock():
		return Busy
	}
	defer s.mu.Unlock()
	if most != Unbounded && takes(most) > most {
		return TooMuch
	}
	do()
	return Done
}

// GatherAll brings home what was stored at replicas.
func (s *Set) GatherAll() Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gather()
}

// FreshAll is GatherAll for what FreshWithin does. It takes every byte for changed.
func (s *Set) FreshAll(addrs []uint64) Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freshPages(addrs)
	n := s.toFreshen(Unbounded, addrs)
	return Work{n, n}
}

// toGather is how many bytes of places gather compares. It counts no further than it has to,
// to know that there are more than most.
func (s *Set) toGather(most int) (n int) {
	for i := 0; i < len(s.order) && n <= most; i++ {
		if r := s.order[i]; !r.readOnly {
			n += s.compares(r)
		}
	}
	return n
}

// compares is how many bytes of a replica gather compares.
func (s *Set) compares(r *replica) int {
	if !s.cfg.Doorbells {
		return pageSize // nothing lives in the poll area
	}
	return s.reach(s.plan.home(r.page), userd)
}

// toFreshen is toGather for freshPages.
func (s *Set) toFreshen(most int, addrs []uint64) (n int) {
	for i := 0; i < len(addrs) && n <= most; i++ {
		s.plan.others(uint32(addrs[i]>>pageShift), func(at place) {
			if s.replicas[at] != nil {
				n += pageSize
			}
		})
	}
	return n
}

func (s *Set) freshPages(addrs []uint64) {
	for _, addr := range addrs {
		s.freshPage(addr)
	}
}
