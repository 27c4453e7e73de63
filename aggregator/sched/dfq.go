package sched

import "time"

// Disengaged fair queueing, for each engine on its own. Most of the time, in the
// free run, everybody's requests go to the card, which takes them by turns, but
// for those who are too far ahead. From time to time the card is drained, and
// each group has it for itself for a slice: how long its requests are is seen,
// and who is ahead is decided for the next free run.
//
// The charge is what was measured, as every completion tells it. With
// DFQConfig.Model it is what the samples foretell, as where completions of the
// free run are not seen; who behaves otherwise while it is sampled cheats it.

// Phase of an engine.
type Phase uint8

// The phases.
const (
	FreeRun Phase = iota
	Drain         // before the first sample
	Sample
	Settle // a slice is over, its requests are not
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
	Wide   bool  // its whole guest may go on: it waits for a semaphore
	Done   int   // requests of it in this slice
	Busy   time.Duration
	IdleAt time.Duration // since when it has nothing, or the card in the free run
	Season time.Duration // all slices so far
	Spent  [phases]time.Duration
}

// forget takes a node that is freed out of what is planned.
func (d *DFQState) forget(n int32) {
	if d.Group == n {
		d.Group = none
	}
	for i := range d.Order {
		if d.Order[i] == n {
			d.Order[i] = none
		}
	}
}

func (s *Scheduler) enterPhase(e int, p Phase) {
	d := &s.Engines[e].DFQ
	d.Spent[d.Phase] += s.Now - d.Since
	d.Phase, d.Since, d.IdleAt = p, s.Now, never
}

// scope is the node below which a turn may be given now, none if there is
// nothing to give; open, if it is not limited to Depth.
func (s *Scheduler) scope(e int) (from int32, open bool) {
	d := &s.Engines[e].DFQ
	for {
		switch d.Phase {
		case FreeRun:
			if s.Now < d.End {
				if s.Engines[e].Rivals > 1 {
					s.Engines[e].Wake = d.End
				}
				s.unstarve(e)
				return root, true
			}
			s.enterPhase(e, Drain)
		case Drain:
			if s.busy(e) > 0 && s.Engines[e].Rivals > 1 {
				return none, false
			}
			s.plan(e)
			if len(d.Order) == 0 { // nobody to compare with, but time goes on for those who come
				f := s.freeRun(s.Config.DFQ.Slice)
				s.hold(e, f, false)
				s.release(e)
				s.enterPhase(e, FreeRun)
				d.End = s.Now + f
				continue
			}
			s.begin(e)
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

func (s *Scheduler) freeRun(season time.Duration) time.Duration {
	if f := s.Config.DFQ.FreeRun; f > 0 {
		return f
	}
	return time.Duration(s.Config.DFQ.Factor) * season
}

// active tells whether a node is a group with work.
func (s *Scheduler) active(n int32, e int) bool {
	return s.Nodes[n].Kind == Inner && n != root && s.isGroup(n) && !s.barred(n, e) && s.Nodes[n].Lanes[e].Able > 0
}

// barred tells whether a node gets no turns, or one above it.
func (s *Scheduler) barred(n int32, e int) bool {
	for ; n != root; n = s.Nodes[n].Parent {
		if s.Nodes[n].Block != 0 || s.Nodes[n].Lanes[e].Rests {
			return true
		}
	}
	return false
}

// competitors counts the groups with work.
func (s *Scheduler) competitors(e int) (k int) {
	for n := range s.Nodes {
		if s.active(int32(n), e) {
			k++
		}
	}
	return k
}

// heldAbove tells whether a node or one above it is held back.
func (s *Scheduler) heldAbove(n int32, e int) bool {
	for ; n != root; n = s.over(n) {
		if s.Nodes[n].Lanes[e].Held {
			return true
		}
	}
	return false
}

// plan lists the groups to sample: those with work that are not held back. Who
// is held counts as if it had had its slice.
func (s *Scheduler) plan(e int) {
	d := &s.Engines[e].DFQ
	d.Order, d.At, d.Season = d.Order[:0], 0, 0
	if s.competitors(e) < 2 {
		return
	}
	for n := range s.Nodes {
		s.looks++
		if !s.active(int32(n), e) {
			continue
		}
		if s.heldAbove(int32(n), e) {
			d.Season += s.Config.DFQ.Slice
		} else {
			d.Order = append(d.Order, int32(n))
		}
	}
}

func (s *Scheduler) begin(e int) {
	d := &s.Engines[e].DFQ
	s.enterPhase(e, Sample)
	d.Group, d.Wide, d.Done, d.Busy, d.From = d.Order[d.At], false, 0, 0, s.Now
}

// sliceOver tells whether the group under way has had its slice.
func (s *Scheduler) sliceOver(e int) bool {
	c, d := &s.Config.DFQ, &s.Engines[e].DFQ
	l := &s.Nodes[d.Group].Lanes[e]
	took := s.Now - d.Since
	enough := d.Done >= c.Least || took >= 4*c.Slice
	if s.barred(d.Group, e) || enough && (took >= c.Slice || d.Done >= c.Requests) {
		return true
	}
	s.Engines[e].Wake = d.Since + c.Slice
	if took >= c.Slice {
		s.Engines[e].Wake = d.Since + 4*c.Slice
	}
	// It has nothing that could be done now: it may be idle, or what it waits for
	// may be in another group of its guest.
	if s.busy(e) > 0 || len(s.sides[d.Group].queues[e][turns]) > 0 {
		d.IdleAt = never
		return false
	}
	if d.IdleAt == never {
		d.IdleAt = s.Now
	}
	if end := d.IdleAt + c.Grace; s.Now < end {
		s.Engines[e].Wake = min(s.Engines[e].Wake, end)
		return false
	}
	if l.Waiting+l.Inflight > 0 && !d.Wide {
		d.Wide, d.IdleAt = true, never
		s.Counts.Invalid++
		return s.firstReady(s.guestOf(d.Group), e) == none
	}
	return true
}

// firstReady finds a group below n that could have a turn, whatever is held.
func (s *Scheduler) firstReady(n int32, e int) int32 {
	for m, stop := n, s.after(n); m != stop; m, _ = s.follow(m, 0) {
		if s.isGroup(m) && !s.barred(m, e) && len(s.sides[m].queues[e][turns]) > 0 {
			return m
		}
	}
	return none
}

// sampled takes note of a completion.
func (s *Scheduler) sampled(c int32, e, n int, busy time.Duration) {
	d := &s.Engines[e].DFQ
	if s.Config.Policy == DFQ && (d.Phase == Sample || d.Phase == Settle) && s.Nodes[c].Parent == d.Group {
		d.Done += n
		d.Busy += busy
		d.IdleAt = never
	}
}

// endSlice closes the slice under way, and the season after the last.
func (s *Scheduler) endSlice(e int) {
	c, d := &s.Config.DFQ, &s.Engines[e].DFQ
	took := s.Now - d.From
	d.Season += took
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
		s.foretell(e, f)
	}
	s.hold(e, f, false)
	s.enterPhase(e, FreeRun)
	d.End = s.Now + f
}

// foretell charges each sampled group what it will use of a free run if the card
// goes round by requests and they are as long as in the sample. A weight is in
// the charge alone: in the sum as well it would cancel.
func (s *Scheduler) foretell(e int, f time.Duration) {
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
		for m := g; m != root; m = s.over(m) {
			s.serve(m, e, use)
		}
	}
}

// hold decides who is held back in a free run of length f: who is ahead of the
// least served of its siblings by more than its share of that. Of these one is
// never held. If urgent, only those count that could do something now.
func (s *Scheduler) hold(e int, f time.Duration, urgent bool) {
	counts := func(n int32) bool {
		l := &s.Nodes[n].Lanes[e]
		return s.competes(n) && s.Nodes[n].Kind == Inner && !s.barred(n, e) && l.Able > 0 && (!urgent || l.Waiting > 0)
	}
	least := func(p int32) (v int64, ok bool) { // of p's children; the tree is walked once for each parent's children
		if s.Config.Hierarchy == Tree {
			for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
				if counts(c) && (!ok || s.Nodes[c].Lanes[e].Tag < v) {
					v, ok = s.Nodes[c].Lanes[e].Tag, true
				}
			}
			return v, ok
		}
		for n := range s.Nodes {
			if s.Nodes[n].Kind != Gone && counts(int32(n)) && s.over(int32(n)) == p && (!ok || s.Nodes[n].Lanes[e].Tag < v) {
				v, ok = s.Nodes[n].Lanes[e].Tag, true
			}
		}
		return v, ok
	}
	for n := range s.Nodes {
		p := &s.Nodes[n]
		if p.Kind != Inner || s.Config.Hierarchy != Tree && int32(n) != root {
			continue
		}
		if v, ok := least(int32(n)); ok {
			p.Lanes[e].Level = max(p.Lanes[e].Level, v)
		}
	}
	for n := range s.Nodes {
		s.looks++
		if s.Nodes[n].Kind != Inner || !s.competes(int32(n)) {
			continue
		}
		l := &s.Nodes[n].Lanes[e]
		if !urgent && !counts(int32(n)) { // who cannot go on saves nothing
			l.Tag = max(l.Tag, s.Nodes[s.over(int32(n))].Lanes[e].Level)
		}
		l.Held = counts(int32(n)) && s.tooFar(int32(n), e, f)
		s.settle(int32(n), e)
	}
}

// tooFar tells whether a node is to be held back in a free run of length f.
func (s *Scheduler) tooFar(n int32, e int, f time.Duration) bool {
	p := s.over(n)
	w, shift := s.activeWeight(p, e)
	return s.Nodes[n].Lanes[e].Tag > s.Nodes[p].Lanes[e].Level+over(f, max(w, 1), shift)
}

// holdBack decides for a node that comes with work, in the middle of a free run.
func (s *Scheduler) holdBack(n int32, e int) {
	if d := &s.Engines[e].DFQ; d.Phase == FreeRun && s.Nodes[n].Kind == Inner {
		s.Nodes[n].Lanes[e].Held = s.tooFar(n, e, max(d.End-d.Since, s.freeRun(s.Config.DFQ.Slice)))
	}
}

// release holds nobody back.
func (s *Scheduler) release(e int) {
	for n := range s.Nodes {
		if l := &s.Nodes[n].Lanes[e]; l.Held {
			l.Held = false
			s.settle(int32(n), e)
		}
	}
}

// unstarve sees to it that the card does not stand still while only those have
// work who are held back: after a moment the least served of them goes on.
func (s *Scheduler) unstarve(e int) {
	d := &s.Engines[e].DFQ
	q := &s.sides[root].queues[e]
	if s.busy(e) > 0 || len(q[turns]) > 0 || s.Nodes[root].Lanes[e].Waiting == 0 {
		d.IdleAt = never
		return
	}
	if d.IdleAt == never {
		d.IdleAt = s.Now
	}
	if end := d.IdleAt + s.Config.DFQ.Grace; s.Now < end {
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

// Phases returns how long an engine was in each phase.
func (s *Scheduler) Phases(now time.Duration, engine int) (spent [phases]time.Duration) {
	s.advance(now)
	d := &s.Engines[engine].DFQ
	spent = d.Spent
	spent[d.Phase] += s.Now - d.Since
	return spent
}
