package homes

import "math"

// Order for who looks at the doorbells of many guests. What one guest has in many places
// keeps the others waiting: who looks does no more of it than it says, and leaves the rest
// to somebody who has the time.

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

// OrderWithin is Order, if that can be done without waiting and by comparing no more than
// so many bytes of places.
func (s *Set) OrderWithin(most int) Outcome {
	return s.within(most, s.toOrder, func() { s.reconcile(userd) })
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
	case s.stats.Replicas.Load() == 0:
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

// OrderAll is Order, and says how many bytes of places that compared.
func (s *Set) OrderAll() (compared int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcile(userd)
	return s.toOrder(Unbounded)
}

// FreshAll is OrderAll for what FreshWithin does.
func (s *Set) FreshAll(addrs []uint64) (compared int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freshPages(addrs)
	return s.toFreshen(Unbounded, addrs)
}

// toOrder is how many bytes of places Order compares. It counts no further than it has to,
// to know that there are more than most.
func (s *Set) toOrder(most int) (n int) {
	for i := 0; i < len(s.order) && n <= most; i++ {
		n += s.compares(s.replicas[s.order[i]])
	}
	return n
}

// compares is how many bytes of a replica Order compares.
func (s *Set) compares(r *replica) int {
	if home := s.plan.home(r.page); !r.readOnly && home != own && home < s.plan.base[PollArea+1] {
		return userd
	}
	return pageSize
}

// toFreshen is toOrder for freshPages.
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
