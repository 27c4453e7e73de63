package sched

import (
	"slices"
	"time"
)

// Disengaged fair queueing, for each engine separately. Most of the time, in the free run, all
// requests go to the card, which takes them in turn, except those of groups that are too far
// ahead. Periodically the card is drained and each group has it for a slice, which measures the
// length of its requests. Then the policy decides which groups to hold back in the next free
// run.
//
// The charge is the measured time of every completion. With DFQConfig.Model it is the estimate
// from the samples, for cards that do not report completions of the free run. A group that
// behaves differently while it is sampled then gains.

const (
	dfqWindow   = 2                      // requests of a channel on the card
	dfqRequests = 96                     // after so many a slice ends early
	dfqLeast    = 5                      // before so many a slice does not end, up to four slices
	dfqGrace    = 500 * time.Microsecond // after which a group that submits nothing is idle
)

// Phase of an engine.
type Phase uint8

// The phases.
const (
	FreeRun Phase = iota
	Drain         // before the first sample
	Sample
	Settle // a slice is over, its requests have not ended
	phases
)

// DFQState is where an engine is.
type DFQState struct {
	Phase  Phase
	Since  time.Duration // of the phase
	End    time.Duration // of the free run
	From   time.Duration // when the slice under way began
	Order  []int32       // groups that are sampled, the one under way at At
	At     int
	Group  int32 // the one under way
	Wide   bool  // its whole guest may continue, because it waits for a semaphore
	Done   int   // its requests in this slice
	Busy   time.Duration
	IdleAt time.Duration // since when it has nothing, or the card in the free run
	Season time.Duration // all slices so far
	Spent  [phases]time.Duration
}

// forget removes a freed node from the plan.
func (d *DFQState) forget(n int32) {
	if d.Group == n {
		d.Group = none
	}
	if i := slices.Index(d.Order, n); i >= 0 {
		d.Order[i] = none
	}
}

type dfq struct{ plain }

func (s dfq) start() {
	for e := range s.Engines {
		d := &s.Engines[e].DFQ
		*d = DFQState{Group: none, Since: s.Now, IdleAt: never, Order: d.Order[:0], Spent: d.Spent}
	}
	s.lower()
}

// lower puts each level to the least tag: under dfq no tag is below it.
func (s dfq) lower() {
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner || int32(n) == root {
			continue
		}
		for e := range s.Engines {
			if up := &s.Nodes[s.Nodes[n].Parent].Lanes[e]; s.Nodes[n].Lanes[e].Able > 0 {
				up.Level = min(up.Level, s.Nodes[n].Lanes[e].Tag)
			}
		}
	}
}

// slice lets all have a turn in the free run.
func (s dfq) slice(e int) time.Duration {
	if p := s.Engines[e].DFQ.Phase; (p == FreeRun || p == Sample) && s.restEnd() == never {
		return 0
	}
	return s.Config.DFQ.Slice
}

func (s dfq) yields(_, _ int32, e int) bool {
	p := s.Engines[e].DFQ.Phase
	return p == Drain || p == Settle
}

func (s dfq) arrive(n int32, e int) {
	l := &s.Nodes[n].Lanes[e]
	l.Tag = max(l.Tag, s.Nodes[s.Nodes[n].Parent].Lanes[e].Level)
	s.holdBack(n, e)
}

func (s dfq) serve(n int32, e int, _, d time.Duration) {
	if !s.Config.DFQ.Model {
		s.addTag(n, e, d)
	}
}

func (s dfq) addTag(n int32, e int, d time.Duration) {
	s.Nodes[n].Lanes[e].Tag += over(d, s.weight(n))
}

func (s dfq) enterPhase(e int, p Phase) {
	d := &s.Engines[e].DFQ
	d.Spent[d.Phase] += s.Now - d.Since
	d.Phase, d.Since, d.IdleAt = p, s.Now, never
}

// scope is the node below which a turn may be given now, or none. If open, Depth is no
// limit.
func (s dfq) scope(e int) (from int32, open bool) {
	eng := &s.Engines[e]
	d := &eng.DFQ
	for {
		switch d.Phase {
		case FreeRun:
			if s.Now < d.End {
				if eng.Groups > 1 {
					eng.Wake = d.End
				}
				s.unstarve(e)
				return root, true
			}
			s.enterPhase(e, Drain)
		case Drain:
			if s.busy(e) > 0 && eng.Groups > 1 {
				return none, false
			}
			s.plan(e)
			if len(d.Order) > 0 {
				s.begin(e)
				continue
			}
			// There is no other group to compare with, but the tag rises for groups that
			// follow.
			f := s.freeRun(s.Config.DFQ.Slice)
			s.hold(e, f, false)
			for n := range s.Nodes {
				s.Nodes[n].Lanes[e].Held = false
			}
			s.enterPhase(e, FreeRun)
			d.End = s.Now + f
		case Sample:
			if d.Group != none && !s.sliceOver(e) {
				if d.Wide {
					return s.firstReady(s.guestOf(d.Group), e), false
				}
				return d.Group, false
			}
			s.enterPhase(e, Settle)
		case Settle:
			if s.busy(e) > 0 {
				return none, false
			}
			s.endSlice(e)
		}
	}
}

func (s dfq) freeRun(season time.Duration) time.Duration {
	if f := s.Config.DFQ.FreeRun; f > 0 {
		return f
	}
	return time.Duration(s.Config.DFQ.Factor) * season
}

// active reports whether a node is a group with work.
func (s dfq) active(n int32, e int) bool {
	return s.Nodes[n].Kind == Inner && n != root && s.isGroup(n) && !s.barred(n, e) && s.Nodes[n].Lanes[e].Able > 0
}

// heldAbove reports whether a node or one above it is held back.
func (s dfq) heldAbove(n int32, e int) bool {
	for ; n != root; n = s.Nodes[n].Parent {
		if s.Nodes[n].Lanes[e].Held {
			return true
		}
	}
	return false
}

// plan lists the groups to sample: those with work that are not held back, if there are two
// with work. A held one counts as if it had had its slice.
func (s dfq) plan(e int) {
	d := &s.Engines[e].DFQ
	d.Order, d.At, d.Season = d.Order[:0], 0, 0
	some := 0
	for n := range s.Nodes {
		if !s.active(int32(n), e) {
			continue
		}
		if some++; s.heldAbove(int32(n), e) {
			d.Season += s.Config.DFQ.Slice
		} else {
			d.Order = append(d.Order, int32(n))
		}
	}
	if some < 2 {
		d.Order, d.Season = d.Order[:0], 0
	}
}

func (s dfq) begin(e int) {
	d := &s.Engines[e].DFQ
	s.enterPhase(e, Sample)
	d.Group, d.Wide, d.Done, d.Busy, d.From = d.Order[d.At], false, 0, 0, s.Now
}

// sliceOver reports whether the group under way has had its slice.
func (s dfq) sliceOver(e int) bool {
	eng, slice := &s.Engines[e], s.Config.DFQ.Slice
	d := &eng.DFQ
	took := s.Now - d.Since
	enough := d.Done >= dfqLeast || took >= 4*slice
	if s.barred(d.Group, e) || enough && (took >= slice || d.Done >= dfqRequests) {
		return true
	}
	eng.Wake = d.Since + slice
	if took >= slice {
		eng.Wake = d.Since + 4*slice
	}
	if s.busy(e) > 0 || s.first(d.Group, e) != none {
		d.IdleAt = never
		return false
	}
	// It has nothing to run now. It may be idle, or wait for another group of its guest.
	if d.IdleAt == never {
		d.IdleAt = s.Now
	}
	if end := d.IdleAt + dfqGrace; s.Now < end {
		eng.Wake = min(eng.Wake, end)
		return false
	}
	if l := &s.Nodes[d.Group].Lanes[e]; l.Waiting+l.Inflight > 0 && !d.Wide {
		d.Wide, d.IdleAt = true, never
		s.Counts.Spoilt++
		return s.firstReady(s.guestOf(d.Group), e) == none
	}
	return true
}

// firstReady finds a group at or below n that could have a turn, even if it is held.
func (s dfq) firstReady(n int32, e int) int32 {
	found := none
	s.walk(n, 0, func(m int32, _ int) {
		if found == none && s.isGroup(m) && !s.barred(m, e) && s.first(m, e) != none {
			found = m
		}
	})
	return found
}

// done counts the requests of a sample.
func (s dfq) done(c int32, e, entries int, _, run time.Duration) {
	d := &s.Engines[e].DFQ
	if entries > 0 && (d.Phase == Sample || d.Phase == Settle) && s.Nodes[c].Parent == d.Group {
		d.Done += entries
		d.Busy += run
		d.IdleAt = never
	}
}

// endSlice closes the slice under way, and the season after the last.
func (s dfq) endSlice(e int) {
	c, d := &s.Config.DFQ, &s.Engines[e].DFQ
	d.Season += s.Now - d.From
	if g := d.Group; g != none {
		l := &s.Nodes[g].Lanes[e]
		l.Mean = 0
		if d.Done > 0 && !d.Wide {
			l.Mean = d.Busy / time.Duration(d.Done)
		}
	}
	if d.At++; d.At < len(d.Order) {
		s.begin(e)
		return
	}
	d.Group = none
	f := s.freeRun(max(d.Season, c.Slice))
	if c.Model {
		s.chargeEstimates(e, f)
	}
	s.hold(e, f, false)
	s.enterPhase(e, FreeRun)
	d.End = s.Now + f
}

// chargeEstimates charges each sampled group its expected use of a free run if the card takes turns
// of one request, as long as in the sample. The weight counts in the charge only: in the sum
// as well it would cancel.
func (s dfq) chargeEstimates(e int, f time.Duration) {
	sum := time.Duration(0)
	for _, g := range s.Engines[e].DFQ.Order {
		if g != none {
			sum += s.Nodes[g].Lanes[e].Mean
		}
	}
	for _, g := range s.Engines[e].DFQ.Order {
		if g == none || sum == 0 {
			continue
		}
		use := time.Duration(float64(f) * float64(s.Nodes[g].Lanes[e].Mean) / float64(sum))
		for m := g; m != root; m = s.Nodes[m].Parent {
			s.addTag(m, e, use)
		}
	}
}

// hold decides which nodes to hold back in a free run of length f: those that are ahead of
// the least served sibling by more than their share of f. The least served is never held. If
// urgent, only nodes that can run now count.
func (s dfq) hold(e int, f time.Duration, urgent bool) {
	counts := func(n int32) bool {
		l := &s.Nodes[n].Lanes[e]
		return s.Nodes[n].Kind == Inner && !s.barred(n, e) && l.Able > 0
	}
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner {
			continue
		}
		least, some := int64(0), false
		for c := s.Nodes[n].First; c != none; c = s.Nodes[c].Next {
			if tag := s.Nodes[c].Lanes[e].Tag; counts(c) && (!some || tag < least) {
				least, some = tag, true
			}
		}
		if l := &s.Nodes[n].Lanes[e]; some {
			l.Level = max(l.Level, least)
		}
	}
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner || int32(n) == root {
			continue
		}
		l := &s.Nodes[n].Lanes[e]
		can := counts(int32(n))
		if !urgent && !can { // nodes that cannot run save nothing
			l.Tag = max(l.Tag, s.Nodes[s.Nodes[n].Parent].Lanes[e].Level)
		}
		l.Held = can && s.tooFar(int32(n), e, f)
	}
}

// tooFar reports whether a node is to be held back in a free run of length f.
func (s dfq) tooFar(n int32, e int, f time.Duration) bool {
	up := &s.Nodes[s.Nodes[n].Parent].Lanes[e]
	return s.Nodes[n].Lanes[e].Tag > up.Level+over(f, max(up.Live+up.Left, 1))
}

// holdBack decides for a node that gets work in the middle of a free run.
func (s dfq) holdBack(n int32, e int) {
	if d := &s.Engines[e].DFQ; d.Phase == FreeRun && s.Nodes[n].Kind == Inner {
		s.Nodes[n].Lanes[e].Held = s.tooFar(n, e, max(d.End-d.Since, s.freeRun(s.Config.DFQ.Slice)))
	}
}

// unstarve releases the least served node after a moment in which all nodes with work are
// held back.
func (s dfq) unstarve(e int) {
	d := &s.Engines[e].DFQ
	if s.busy(e) > 0 || s.first(root, e) != none || s.Nodes[root].Lanes[e].Able == 0 {
		d.IdleAt = never
		return
	}
	if d.IdleAt == never {
		d.IdleAt = s.Now
	}
	if end := d.IdleAt + dfqGrace; s.Now < end {
		s.Engines[e].Wake = min(s.Engines[e].Wake, end)
		return
	}
	d.IdleAt = never
	s.hold(e, 0, true)
}

// Sampling returns the group that has an engine for itself, zero if none has.
func (s *Scheduler) Sampling(engine int) ID {
	if d := &s.Engines[engine].DFQ; s.Config.Policy == DFQ && d.Phase == Sample && d.Group != none {
		return s.id(d.Group)
	}
	return 0
}
