package sched

import "time"

// Under timeslice one child at a time has the node. The card's slices go by the clock. Below
// the card, where a holder does not have the card for itself, a slice is a time served.

// sliceGrace is how long an idle holder keeps the card.
const sliceGrace = 500 * time.Microsecond

type timeslice struct{ plain }

func newTimeslice(s *core, old *Config) policy {
	for n := range s.Nodes {
		for e := range s.Engines {
			if l := &s.Nodes[n].Lanes[e].Slice; old.Policy != Timeslice {
				*l = SliceState{}
			} else if *old != s.Config {
				l.Round = 0
			}
		}
	}
	return timeslice{plain{s}}
}

// clock measures slices of p's children.
func (s timeslice) clock(p int32, e int) time.Duration {
	if p == root {
		return s.Now
	}
	return s.Nodes[p].Lanes[e].Account.Busy
}

// share is the configured one, times the child's weight over the mean weight of the round.
func (s timeslice) share(n int32, e int) time.Duration {
	l := &s.Nodes[s.Nodes[n].Parent].Lanes[e].Slice
	base := s.Config.Timeslice.Slice
	d := float64(base) * float64(s.weight(n)) * float64(l.Rivals) / float64(max(l.Live, 1))
	return max(base/64, min(base*64, time.Duration(d)))
}

func (s timeslice) Next(e int) (int32, int) {
	if s.busy(e) >= s.Config.Depth {
		return none, 0
	}
	c := root
	for c != none && s.Nodes[c].Kind != Channel {
		if s.isGroup(c) {
			c = s.first(c, e, byTurn)
		} else {
			c = s.child(c, e)
		}
	}
	return s.give(c, root, e, 1)
}

// child keeps to the holder until its slice is over and its requests have ended, then
// finds the next child that has not overstayed.
func (s timeslice) child(p int32, e int) int32 {
	s.period(p, e)
	up := &s.Nodes[p].Lanes[e]
	l := &up.Slice
	now := s.clock(p, e)
	if h := s.find(l.Holder); h != none {
		switch keep, wait := s.holds(h, p, e, now); {
		case wait:
			return none
		case keep:
			return h
		}
		l.Holder = 0
	}
	for skipped := 0; ; {
		c := s.first(p, e, byTurn)
		if c == none {
			return none
		}
		cl := &s.Nodes[c].Lanes[e]
		if cl.Turn >= l.Round {
			// It had a turn in this round, so another begins. The weights of a round are fixed. If they
			// followed the set of able children, a child that is always chosen while another rests
			// would have other slices than its equals.
			s.Turn++
			l.Round, l.Rivals, l.Live = s.Turn, up.Rivals, up.Live
		}
		slice := s.share(c, e)
		if up.Live <= s.weight(c) {
			cl.Overuse = 0 // alone, it took no time from others
		}
		if cl.Overuse <= slice {
			l.Holder, l.End, l.OverFrom, l.IdleAt = s.id(c), now+slice, 0, never
			return c
		}
		if skipped++; skipped > up.Rivals { // all exceeded their slices: skip many rounds in one step
			s.reduceOveruse(c, e)
			skipped = 0
		}
		cl.Overuse -= slice
		s.Turn++
		cl.Turn = s.Turn
	}
}

// reduceOveruse subtracts as many whole rounds of slices as possible from the overuse of the siblings
// that take turns: the ready ones of one priority.
func (s timeslice) reduceOveruse(sibling int32, e int) {
	turns := func(c int32) bool {
		return s.Nodes[c].Config.Priority == s.Nodes[sibling].Config.Priority && s.ready(c, e)
	}
	first, rounds := s.Nodes[s.Nodes[sibling].Parent].First, time.Duration(1)<<62
	for c := first; c != none; c = s.Nodes[c].Next {
		if turns(c) {
			rounds = min(rounds, (s.Nodes[c].Lanes[e].Overuse-1)/s.share(c, e))
		}
	}
	for c := first; c != none; c = s.Nodes[c].Next {
		if turns(c) {
			s.Nodes[c].Lanes[e].Overuse -= max(0, rounds-1) * s.share(c, e)
		}
	}
}

// holds reports whether the holder keeps the card, or the card waits.
func (s timeslice) holds(h, p int32, e int, now time.Duration) (keep, wait bool) {
	l := &s.Nodes[p].Lanes[e].Slice
	ready := s.ready(h, e)
	busy := p == root && s.busy(e) > 0 // with the holder's requests
	switch {
	case now >= l.End || s.Nodes[h].Block != 0 || !ready && s.Nodes[h].Lanes[e].Waiting > 0:
		return false, busy
	case ready:
		l.IdleAt = never
		return true, false
	case p != root:
		return false, false // others can run
	case busy:
		l.IdleAt = never
		return false, true
	}
	if l.IdleAt == never {
		l.IdleAt = now
	}
	end := min(l.End, l.IdleAt+sliceGrace)
	if now >= end {
		return false, false
	}
	s.Engines[e].Wake = end
	return false, true
}

// Charge takes note of what a request took beyond its owner's slice. All that it took in another's
// slice is beyond.
func (s timeslice) Charge(c int32, e int, u Use) {
	s.plain.Charge(c, e, u)
	if !u.Metered {
		return
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		p := s.Nodes[m].Parent
		l := &s.Nodes[p].Lanes[e].Slice
		now, holds, more := s.clock(p, e), l.Holder == s.id(m), u.Busy
		switch {
		case s.isGroup(p) || holds && now <= l.End:
			continue
		case holds:
			more = now - max(l.End, l.OverFrom)
			l.OverFrom = now
		}
		s.Nodes[m].Lanes[e].Overuse += more
		for a := c; p == root && a != none; a = s.Nodes[a].Parent {
			s.Nodes[a].Lanes[e].Account.Overrun += more
		}
	}
}

func (s timeslice) Timer(e int) int32 { return s.overstays(e, s.Config.Timeslice.Slice, s.yields) }

// yields lets a holder keep its slice, unless another has a higher priority.
func (s timeslice) yields(m, p int32, e int) bool {
	if s.isGroup(p) {
		return s.plain.yields(m, p, e)
	}
	best := s.firstBut(m, p, e, byTurn)
	if best == none {
		return false
	}
	if d := s.Nodes[best].Config.Priority - s.Nodes[m].Config.Priority; d != 0 {
		return d > 0
	}
	l := &s.Nodes[p].Lanes[e].Slice
	left := l.End - s.clock(p, e)
	if l.Holder != s.id(m) || left <= 0 {
		return true
	}
	s.Engines[e].Wake = min(s.Engines[e].Wake, s.Now+left)
	return false
}
