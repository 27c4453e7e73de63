package sched

import "time"

// Time served, and what follows from it: tags, credit, debt.
//
// A parent's Level is the tag of a child that is neither ahead of its share nor
// behind. Each period it rises by what its children had to share, over their
// weight: so a child's credit is its distance below the level, times its weight,
// and giving credit to all is one addition. The credit of a child is bounded when
// it is looked at, not every period.

// periodNow numbers the credit periods.
func (s *Scheduler) periodNow() int64 { return int64(s.Now / s.Config.Credit.Period) }

// period gives credit to the children of p for the periods that have ended.
func (s *Scheduler) period(p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	now := s.periodNow()
	if now == l.Period {
		return
	}
	grant := l.Received // what there was to share: of a card that rests between requests, less than the time
	if w, shift := s.activeWeight(p, e); w > 0 && s.Config.Policy != DFQ {
		l.Level += over(grant, w, shift)
	}
	l.Period, l.Received, l.Left = now, 0, 0
	if l.Level > 1<<60 {
		s.rebase(p, e)
	}
}

// rebase counts tags from the level on, long before they would overflow.
func (s *Scheduler) rebase(p int32, e int) {
	by := s.Nodes[p].Lanes[e].Level
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Gone && int32(n) != root && s.over(int32(n)) == p {
			s.Nodes[n].Lanes[e].Tag = max(s.Nodes[n].Lanes[e].Tag-by, -by)
		}
		for i := range s.Nodes[n].Lanes[e].Orphans {
			if o := &s.Nodes[n].Lanes[e].Orphans[i]; int32(n) == p || s.Config.Hierarchy != Tree {
				*o = max(*o-by, 0)
			}
		}
	}
	for _, r := range s.sides[p].queues[e][debts] { // in the same order as before
		st := &s.Nodes[r.node].Lanes[e].Stand
		st.Key = max(st.Key-by, -by)
		s.sides[p].queues[e][debts][s.sides[r.node].slots[e].pos].key = st.Key
	}
	s.Nodes[p].Lanes[e].Level = 0
}

// Tags are nanoseconds, shifted, over weight.
const (
	tagShift   = 10
	shareShift = 20
	leastShare = 1 << (shareShift - tagShift) // a smaller share counts as this
)

// over divides a time by a weight.
func over(d time.Duration, weight int64, shift uint) int64 {
	if d > time.Hour || d < -time.Hour { // does not fit
		return int64(d) / weight << shift
	}
	return int64(d) << shift / weight
}

// weight of a node among those with whom it takes turns.
func (s *Scheduler) weight(n int32, e int) (w int64, shift uint) {
	if s.Config.Hierarchy != FlatWeights || s.Nodes[n].Kind == Channel {
		return int64(s.Nodes[n].Config.Weight), tagShift
	}
	w = 1 << shareShift
	for m := n; m != root; m = s.Nodes[m].Parent {
		l, up := &s.Nodes[m].Lanes[e], &s.Nodes[s.Nodes[m].Parent].Lanes[e]
		own := int64(s.Nodes[m].Config.Weight)
		all := up.Live + up.Left
		if l.Able == 0 && l.Idle != up.Period {
			all += own
		}
		w = w * own / max(all, own)
	}
	return max(w, leastShare), shareShift
}

// activeWeight is that of the children of p that have work, or had some in this
// period; zero if none.
func (s *Scheduler) activeWeight(p int32, e int) (w int64, shift uint) {
	l := &s.Nodes[p].Lanes[e]
	w = l.Live + l.Left
	if p != root || w == 0 {
		return w, tagShift
	}
	switch s.Config.Hierarchy {
	case Flat:
		return max(s.Engines[e].Flat, 1), tagShift
	case FlatWeights:
		return 1 << shareShift, shareShift
	}
	return w, tagShift
}

// savings is how far below the level a child of p may be: while it has work, its
// part of two periods and two rounds of all with the longest request, for which it
// may have to wait. With less it would lose what it is owed. Who comes back from
// having none brings its part of two periods.
func (s *Scheduler) savings(p int32, e int, back bool) int64 {
	w, shift := s.activeWeight(p, e)
	d := s.Config.Credit.Period
	if !back {
		n := s.Nodes[p].Lanes[e].Rivals
		if p == root && s.Config.Hierarchy != Tree {
			n = s.Engines[e].Rivals
		}
		d += time.Duration(n) * min(s.Engines[e].Longest, time.Hour/time.Duration(max(n, 1)))
	}
	return over(2*d, max(w, 1), shift)
}

// enter bounds what a node has saved that comes back to its siblings.
func (s *Scheduler) enter(n int32, e int) {
	if !s.competes(n) {
		return
	}
	p := s.over(n)
	s.period(p, e)
	l, up := &s.Nodes[n].Lanes[e], &s.Nodes[p].Lanes[e]
	if s.Config.Policy == DFQ {
		l.Tag = max(l.Tag, up.Level)
		s.holdBack(n, e)
	} else {
		l.Tag = max(l.Tag, up.Level-s.savings(p, e, true))
	}
}

// charge writes down that an engine worked for a channel, and puts time into the
// tags: that time when it is measured, or what is foretold of it.
func (s *Scheduler) charge(c int32, e int, busy, served time.Duration) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.period(m, e)
		l := &s.Nodes[m].Lanes[e]
		l.Account.Busy += busy
		l.Received += busy
		if now := s.windowNow(); l.UsedIn != now {
			l.UsedIn, l.Used = now, 0
		}
		l.Used += busy
		if busy > 0 && m != root {
			s.spend(m, e, busy)
		}
	}
	if s.Config.Policy != DFQ || !s.Config.DFQ.Model {
		for m := c; m != root; m = s.over(m) {
			s.serve(m, e, served)
			if h := s.find(s.Nodes[m].Heir); h != none {
				s.serve(h, e, served)
				s.settle(h, e)
			}
		}
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		switch {
		case s.competes(m):
			s.settle(m, e)
		case s.Nodes[m].Lanes[e].Rests:
			s.settleBelow(m, e)
		}
	}
}

// serve puts time into one node's tag.
func (s *Scheduler) serve(n int32, e int, d time.Duration) {
	p := s.over(n)
	l, level := &s.Nodes[n].Lanes[e], s.Nodes[p].Lanes[e].Level
	w, shift := s.weight(n, e)
	if s.Config.Policy == DFQ {
		l.Tag += over(d, w, shift)
		return
	}
	// Credit and debt are bounded. Debt is not forgiven below what the longest requests
	// cost that may be on the engine at once, and one more: those that outlast a period
	// would be for nothing. What is foretold comes on top, as all of it is taken back.
	most := time.Duration(1+s.atOnce()) * min(s.Engines[e].Longest, time.Hour)
	bound := level + over(max(s.Config.Credit.Period, most)+l.Pending, w, shift)
	l.Tag = min(max(l.Tag, level-s.savings(p, e, false))+over(d, w, shift), bound)
}

// debt is the time by which a node is ahead of its share.
func (s *Scheduler) debt(n int32, e int) time.Duration {
	if !s.competes(n) {
		return 0
	}
	w, shift := s.weight(n, e)
	ahead := s.Nodes[n].Lanes[e].Tag - s.Nodes[s.over(n)].Lanes[e].Level
	if ahead > 1<<40 || ahead < -1<<40 {
		return time.Duration(ahead >> shift * w)
	}
	return time.Duration(ahead * w >> shift)
}

// chooseCredit takes those with credit by turns, then the one with the least
// debt for its weight.
func (s *Scheduler) chooseCredit(p int32, e int) int32 {
	s.period(p, e)
	l := &s.Nodes[p].Lanes[e]
	q := &s.sides[p].queues[e]
	for len(q[debts]) > 0 && q[debts][0].key < l.Level {
		s.rerank(q[debts][0].node, p, e)
		s.tellOldest(p, e)
	}
	switch {
	case len(q[debts]) == 0 && len(q[turns]) == 0:
		return none
	case len(q[turns]) == 0:
		return q[debts][0].node
	case len(q[debts]) > 0 && q[debts][0].prio > q[turns][0].prio:
		return q[debts][0].node
	}
	return q[turns][0].node
}

// rise lifts the level to a node that has the next turn although it is in debt, if
// all who wait are, for all alike. It would be lost otherwise that some have more when
// all reach the bound.
func (s *Scheduler) rise(n int32, e int) {
	p := s.over(n)
	if d := s.discipline(p); d != Credit && d != Band {
		return
	}
	if q := &s.sides[p].queues[e]; len(q[turns]) == 0 {
		l := &s.Nodes[p].Lanes[e]
		l.Level = max(l.Level, s.Nodes[n].Lanes[e].Tag)
	}
}
