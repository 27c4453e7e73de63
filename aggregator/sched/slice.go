package sched

import "time"

// Timeslices. The card goes by the clock; below it, where a holder does not have
// the card for itself, a slice is a time served.

// clock is what slices of p's children are measured by.
func (s *Scheduler) clock(p int32, e int) time.Duration {
	if p == root {
		return s.Now
	}
	return s.Nodes[p].Lanes[e].Account.Busy
}

// slice is how long a child has the card: its weight over the mean of the round's, of
// what is configured.
func (s *Scheduler) slice(n, p int32, e int) time.Duration {
	w, _ := s.weight(n, e)
	l := &s.Nodes[p].Lanes[e]
	base := int64(s.Config.Timeslice.Slice)
	return time.Duration(max(base/64, min(base*64, int64(float64(base)*float64(w)*float64(l.RoundOf)/float64(max(l.RoundAll, 1))))))
}

// round begins another round when the child that is next had a turn in this one. By what
// a weight is measured is decided then, for all of the round: if it went by who can go on
// at the moment, a child that is always chosen while another rests would have longer
// slices, or shorter ones, than its equals.
func (s *Scheduler) round(next, p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	if s.Nodes[next].Lanes[e].Turn < l.Round {
		return
	}
	s.Turn++
	l.Round = s.Turn
	if p == root && s.Config.Hierarchy != Tree {
		l.RoundOf = s.Engines[e].Rivals
		l.RoundAll, _ = s.activeWeight(p, e)
		return
	}
	l.RoundOf, l.RoundAll = l.Rivals, l.Live
}

// chooseSlice keeps to the holder until its slice is over and its requests are
// done, then finds the next that has not overstayed.
func (s *Scheduler) chooseSlice(p int32, e int) int32 {
	s.period(p, e)
	l := &s.Nodes[p].Lanes[e]
	now := s.clock(p, e)
	if h := l.Holder; h != none {
		switch keep, wait := s.holds(h, p, e, now); {
		case wait:
			return none
		case keep:
			return h
		}
		l.Holder = none
	}
	q := &s.sides[p].queues[e]
	for skipped := 0; len(q[turns]) > 0; {
		c := q[turns][0].node
		s.round(c, p, e)
		cl := &s.Nodes[c].Lanes[e]
		slice := s.slice(c, p, e)
		if l.Live <= int64(s.Nodes[c].Config.Weight) {
			cl.Overuse = 0 // alone, it took nothing from anybody
		}
		if cl.Overuse <= slice {
			l.Holder, l.Begun, l.SliceEnd, l.OverFrom, l.IdleAt = c, now, now+slice, 0, never
			return c
		}
		if skipped++; skipped > len(q[turns]) { // all overstayed: many rounds at once
			s.payBack(p, e)
			skipped = 0
		}
		cl.Overuse -= slice
		s.Turn++
		cl.Turn = s.Turn
		s.rerank(c, p, e)
	}
	return none
}

// payBack takes as many slices as possible off everybody's overuse.
func (s *Scheduler) payBack(p int32, e int) {
	list := s.sides[p].queues[e][turns]
	rounds := int64(1) << 62
	for _, r := range list {
		rounds = min(rounds, int64((s.Nodes[r.node].Lanes[e].Overuse-1)/s.slice(r.node, p, e)))
	}
	for _, r := range list {
		s.Nodes[r.node].Lanes[e].Overuse -= time.Duration(max(0, rounds-1)) * s.slice(r.node, p, e)
	}
}

// holds tells whether the holder keeps the card, or the card waits.
func (s *Scheduler) holds(h, p int32, e int, now time.Duration) (keep, wait bool) {
	l := &s.Nodes[p].Lanes[e]
	ready := s.sides[h].slots[e].pos != none
	busy := p == root && s.busy(e) > 0 // whose, if not the holder's
	switch {
	case s.Nodes[h].Block != 0 || !ready && s.Nodes[h].Lanes[e].Waiting > 0: // barred
		return false, busy
	case now >= l.SliceEnd:
		return false, busy
	case ready:
		l.IdleAt = never
		return true, false
	case p != root:
		return false, false // others can go on
	case busy:
		l.IdleAt = never
		return false, true
	}
	if l.IdleAt == never {
		l.IdleAt = now
	}
	end := l.SliceEnd
	if s.Config.Timeslice.WorkConserving {
		end = min(end, l.IdleAt+s.Config.Timeslice.Grace)
	}
	if now >= end {
		return false, false
	}
	s.Engines[e].Wake = end
	return false, true
}

// overrun writes down what a request took beyond its owner's slice.
func (s *Scheduler) overrun(c int32, e int) {
	for m := c; m != root; m = s.over(m) {
		p := s.over(m)
		l := &s.Nodes[p].Lanes[e]
		now := s.clock(p, e)
		if s.discipline(p) != Timeslice || l.Holder != m || now <= l.SliceEnd {
			continue
		}
		more := now - max(l.SliceEnd, l.OverFrom)
		l.OverFrom = now
		s.Nodes[m].Lanes[e].Overuse += more
		if p == root {
			s.addOverrun(c, e, more)
		}
	}
}

func (s *Scheduler) addOverrun(c int32, e int, d time.Duration) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Account.Overrun += d
	}
}
