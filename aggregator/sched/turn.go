package sched

import (
	"slices"
	"time"
)

// A request that is on the card has its turn until it ends, with two exceptions. One that waited
// for a semaphore needs a turn when the semaphore is released, like one that is submitted. And one
// that has had an engine for long loses its turn when others have a better claim. The caller
// pauses a channel whose requests have no turn. Their next turn resumes it.

// Hold is whether the requests that a channel has on the card have a turn.
type Hold uint8

// The values of Hold.
const (
	Granted  Hold = iota // they have
	Released             // they have none yet, since a semaphore was released
	Pausing              // the caller pauses the channel; an engine may still work for it
	Paused               // they wait for a turn, and no engine works for them
)

// counts reports whether a channel's requests on the card keep an engine busy.
func (s *Scheduler) counts(c int32) bool {
	ch := &s.Nodes[c].Chan
	return !ch.Stalled && (ch.Hold == Granted || ch.Hold == Pausing)
}

// setHold changes whether a channel waits for a semaphore, and whether its requests have a turn. The
// expected time of requests that do not count is not charged.
func (s *Scheduler) setHold(c int32, stalled bool, h Hold) {
	ch := &s.Nodes[c].Chan
	if ch.OnCard == 0 {
		h = Granted
	}
	var able [MaxEngines]bool
	for e := range s.Engines {
		able[e] = s.able(c, e)
	}
	counted := s.counts(c)
	ch.Stalled, ch.Hold = stalled, h
	counts := s.counts(c)
	if counts && !counted {
		ch.HeadFrom = s.Now
	}
	for e := range s.Engines {
		eng, l := &s.Engines[e], &s.Nodes[c].Lanes[e]
		switch n := l.Inflight; {
		case n == 0 || counts == counted:
		case counts:
			if s.busy(e) == 0 {
				eng.Progress = s.Now
			}
			eng.Off -= n
			s.load(c, e)
			s.expect(c, e, s.estimate(c, e, n))
		default:
			eng.Off += n
			s.unload(c, e)
			s.expect(c, e, -l.Pending)
		}
		if is := s.able(c, e); is != able[e] {
			s.setAble(c, e, is)
		}
	}
	for e := range s.Engines {
		s.settle(c, e)
	}
}

// Stall reports that a channel waits for a semaphore on the card, or no longer. While it
// waits, its requests use no engine, so others continue. Afterwards they need a turn.
func (s *Scheduler) Stall(now time.Duration, ch ID, on bool) {
	s.advance(now)
	c := s.channel(ch)
	if c == none || s.Nodes[c].Chan.Stalled == on {
		return
	}
	h := s.Nodes[c].Chan.Hold
	if !on && h == Granted && s.Nodes[c].Block&Dying == 0 {
		h = Released
		s.released = append(s.released, c)
	}
	s.setHold(c, on, h)
}

// Underway reports that the card has begun an entry of a channel that it does not run yet, and that
// has no other. The entry needs a turn to go on.
func (s *Scheduler) Underway(now time.Duration, ch ID) {
	s.advance(now)
	c := s.channel(ch)
	if c == none {
		return
	}
	s.Turn++
	e := int(s.Nodes[c].Chan.Engine)
	s.Nodes[c].Chan.Hold, s.Nodes[c].Chan.Seq = Paused, s.Turn
	s.wasAble(c, e, func() { s.addInflight(c, e, 1) })
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Account.Entries++
	}
	s.settle(c, e)
}

// Paused reports that a channel that was to be paused has left the card's engines. A card that
// does not interrupt a request completes it before.
func (s *Scheduler) Paused(now time.Duration, ch ID) {
	s.advance(now)
	if c := s.channel(ch); c != none && s.Nodes[c].Chan.Hold == Pausing {
		s.setHold(c, s.Nodes[c].Chan.Stalled, Paused)
	}
}

// unjust finds a channel that has to be paused: its requests can run and got no turn, or they have
// had an engine for longer than their turn.
func (s *Scheduler) unjust() int32 {
	for len(s.released) > 0 {
		i := lowest(s.released)
		c := s.released[i]
		s.released = slices.Delete(s.released, i, i+1)
		if n := &s.Nodes[c]; n.Kind == Channel && n.Chan.Hold == Released && !n.Chan.Stalled {
			return c
		}
	}
	for e := range s.Engines {
		if c := s.overstays(e); c != none {
			return c
		}
	}
	return none
}

// lowest returns where the lowest number of a list is. The order of released and loaded is not part
// of the state, so nothing may depend on it.
func lowest(list []int32) (at int) {
	for i, c := range list {
		if c < list[at] {
			at = i
		}
	}
	return at
}

// quantum is how long the requests of a channel have an engine before others may have it.
func (s *Scheduler) quantum() time.Duration {
	switch s.Config.Policy {
	case DFQ:
		return s.Config.DFQ.Slice
	case Timeslice:
		return s.Config.Timeslice.Slice
	}
	return s.Config.Slice
}

// overstays finds the first channel whose turn on an engine is over although its request has not
// ended.
func (s *Scheduler) overstays(e int) int32 {
	eng := &s.Engines[e]
	switch s.Config.Policy {
	case None:
		return none
	case DFQ: // in the free run all have a turn
		if p := eng.DFQ.Phase; (p == FreeRun || p == Sample) && len(s.rests) == 0 {
			return none
		}
	}
	found := none
	for _, c := range s.loaded[e] {
		ch := &s.Nodes[c].Chan
		switch end := ch.HeadFrom + s.quantum(); {
		case ch.Hold == Pausing || s.Nodes[c].Block&Dying != 0 || found != none && c > found:
		case s.Now < end:
			eng.Wake = min(eng.Wake, end)
		case !s.stays(c, e):
			found = c
		}
	}
	return found
}

// stays reports whether a channel on an engine keeps its turn.
func (s *Scheduler) stays(c int32, e int) bool {
	if p := s.Engines[e].DFQ.Phase; s.Config.Policy == DFQ && (p == Drain || p == Settle) {
		return false
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		if l := &s.Nodes[m].Lanes[e]; l.Rests || l.Held || s.yields(m, s.Nodes[m].Parent, e) {
			return false
		}
	}
	return true
}

// yields reports whether a child of p that is on the card has to yield to another that is ready.
func (s *Scheduler) yields(m, p int32, e int) bool {
	policy := s.policy(p)
	if policy == FIFO || s.Config.Policy == DFQ {
		return false
	}
	var best int32
	if policy == Credit || policy == Band {
		best = s.chooseCredit(p, e)
	} else if best = s.first(p, e); best == m && policy == Timeslice {
		best = s.other(p, e)
	}
	if best == none || best == m {
		return false
	}
	if mine, its := s.Nodes[m].Config.Priority, s.Nodes[best].Config.Priority; mine != its {
		return its > mine
	}
	l, up := &s.Nodes[m].Lanes[e], &s.Nodes[p].Lanes[e]
	switch policy {
	case Timeslice:
		return up.Holder != m || s.clock(p, e) >= up.SliceEnd
	case Credit, Band:
		tag := l.Tag - over(l.Pending, s.weight(m)) // as if it had had what it has
		its := s.Nodes[best].Lanes[e].Tag
		if tag < up.Level { // those with credit take turns
			return its < up.Level && (policy == Credit || s.overShare(m, e) || !s.overShare(best, e))
		}
		return its < tag
	}
	return true
}

// first is the child of p that is first in turn, none if none is ready.
func (s *Scheduler) first(p int32, e int) int32 {
	if q := &s.sides[p].queues[e]; len(q[turns]) > 0 {
		return q[turns][0].node
	}
	return none
}

// other is a ready child of p besides the first, none if there is none.
func (s *Scheduler) other(p int32, e int) int32 {
	if q := &s.sides[p].queues[e]; len(q[turns]) > 1 {
		return q[turns][1].node
	}
	return none
}
