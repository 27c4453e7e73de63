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
// microseconds. Pages of USERD that a driver has written through another window too come to
// 64 KiB. What has changed takes mergedAtOnce at most, beyond what is begun: some tens of them
// (BenchmarkGatherWithin).
const (
	AtOnce       = 96 << 10
	mergedAtOnce = 4 << 10
)

// Outcome is what came of something that was to be done within bounds.
type Outcome uint8

// The outcomes.
const (
	Done    Outcome = iota
	Busy            // pages move, or somebody else is at it
	TooMuch         // it takes more than it may, and is not done, or in part
)

// Unbounded is the bound of who looks for one guest alone: what it takes is not counted first.
const Unbounded = math.MaxInt

// Work is what was done of places, in bytes.
type Work struct {
	Compared int // with what they had been
	Merged   int // of these, looked at word by word, for something near had changed
	Moved    int // of these, in words that had changed
}

func (w *Work) merge(m merged) {
	w.Merged += m.looked
	w.Moved += 4 * m.words
}

// merging is what it takes to merge, in about the time of a byte that goes over.
func (w *Work) merging() int { return w.Moved + w.Merged/4 }

// GatherWithin is GatherAll, if that can be done without waiting and by comparing no more than
// so many bytes of places.
func (s *Set) GatherWithin(most int) (Outcome, Work) {
	return s.within(most, s.toGather, s.gather)
}

// FreshWithin brings to pages of VRAM what was written to other places that show them, within
// the same bounds. It is for pages that a doorbell may be in.
func (s *Set) FreshWithin(most int, addrs []uint64) (Outcome, Work) {
	if len(addrs) == 0 {
		return Done, Work{}
	}
	return s.within(most,
		func(most int) int { return s.toFreshen(most, addrs) },
		func(most int) Work { return s.freshPages(most, addrs) })
}

// within does what compares no more than most, as takes says beforehand. How much has changed
// is known only as it is done: do ends when that is more work than it is told.
func (s *Set) within(most int, takes func(most int) int, do func(most int) Work) (Outcome, Work) {
	switch {
	case !s.Aliased():
		return Done, Work{}
	case !s.mu.TryLock():
		return Busy, Work{}
	}
	defer s.mu.Unlock()
	if most == Unbounded {
		return Done, do(Unbounded)
	}
	if takes(most) > most {
		return TooMuch, Work{}
	}
	w := do(mergedAtOnce)
	if w.merging() > mergedAtOnce {
		return TooMuch, w
	}
	return Done, w
}

// GatherAll brings home what was stored at replicas.
func (s *Set) GatherAll() Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gather(Unbounded)
}

// FreshAll is GatherAll for what FreshWithin does.
func (s *Set) FreshAll(addrs []uint64) Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freshPages(Unbounded, addrs)
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

// toFreshen is toGather for freshPages. A page may be shown at many more places than are
// replicas: those are not looked at.
func (s *Set) toFreshen(most int, addrs []uint64) (n int) {
	for _, addr := range addrs {
		for r := s.ofPage[uint32(addr>>pageShift)]; r != nil && n <= most; r = r.after {
			n += pageSize
		}
	}
	return n
}

// freshPages brings to the pages of VRAM at addrs what was written to other places that show
// them, and ends when that is more work than so much.
func (s *Set) freshPages(most int, addrs []uint64) (w Work) {
	for _, addr := range addrs {
		for r := s.ofPage[uint32(addr>>pageShift)]; r != nil && w.merging() <= most; r = r.after {
			w.Compared += pageSize
			w.merge(s.hold(r, pageSize))
		}
	}
	return w
}
