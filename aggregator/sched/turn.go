package sched

import "time"

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

// keepsBusy reports whether a node is a channel with requests that keep an engine busy.
func (s *Scheduler) keepsBusy(c int32, e int) bool {
	n := &s.Nodes[c]
	return n.Kind == Channel && n.Lanes[e].Inflight > 0 && s.counts(c)
}

// setHold changes whether a channel waits for a semaphore, and whether its requests have a turn. The
// expected time of requests that do not count is not charged.
func (s *Scheduler) setHold(c int32, stalled bool, h Hold) {
	ch := &s.Nodes[c].Chan
	if ch.OnCard == 0 {
		h = Granted
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
			s.expect(c, e, s.estimate(c, e, n))
		default:
			eng.Off += n
			s.expect(c, e, -l.Pending)
		}
		s.noteAble(c, e)
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
	s.addInflight(c, e, 1)
	s.book(c, e, Account{Entries: 1})
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
	for c := range s.Nodes {
		if n := &s.Nodes[c]; n.Kind == Channel && n.Chan.Hold == Released && !n.Chan.Stalled {
			return int32(c)
		}
	}
	for e := range s.Engines {
		if c := s.overstays(e); c != none {
			return c
		}
	}
	return none
}

// overstays finds the first channel whose turn on an engine is over although its request has not
// ended.
func (s *Scheduler) overstays(e int) int32 {
	slice := s.policy.slice(e)
	if slice == 0 || s.busy(e) == 0 {
		return none
	}
	for n := range s.Nodes {
		c, ch := int32(n), &s.Nodes[n].Chan
		switch end := ch.HeadFrom + slice; {
		case !s.keepsBusy(c, e) || ch.Hold == Pausing || s.Nodes[c].Block&Dying != 0:
		case s.Now < end:
			s.Engines[e].Wake = min(s.Engines[e].Wake, end)
		case !s.stays(c, e):
			return c
		}
	}
	return none
}

// stays reports whether a channel on an engine keeps its turn.
func (s *Scheduler) stays(c int32, e int) bool {
	for m := c; m != root; m = s.Nodes[m].Parent {
		p := s.Nodes[m].Parent
		if s.rests(m, e) || s.Nodes[m].Lanes[e].Held || s.rules(p).yields(m, p, e) {
			return false
		}
	}
	return true
}
