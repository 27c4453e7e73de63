package sched

import "time"

// A parent's Level is the tag of a child that is neither ahead of its share nor behind. Each
// period it rises by the time that its children shared, over their weight. So a child's credit
// is its distance below the level, times its weight, and giving credit to all is one addition.

// period gives credit to the children of p for the periods that have ended. They share what
// they received, which is less than the time on a card that rests between requests.
func (s *State) period(p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	if s.Period == l.Period {
		return
	}
	if w := l.Live + l.Left; w > 0 {
		l.Level += over(l.Received, w)
	}
	l.Period, l.Received, l.Left = s.Period, 0, 0
	if l.Level > 1<<60 {
		s.rebase(p, e)
	}
}

// receive takes note of time that a child of p used. For what it used in earlier periods, and is charged
// for only now, there is credit at once: those that have work now had it then, since the caller charges
// what runs before it reports the work of others.
func (s *State) receive(p int32, e int, busy time.Duration) {
	l := &s.Nodes[p].Lanes[e]
	l.Received += busy
	late, w := busy-s.Now%s.Config.Credit.Period, l.Live+l.Left
	if late >= s.Config.Credit.Period && w > 0 {
		l.Level += over(late, w)
		l.Received -= late
	}
}

// rebase counts tags from the level on, before they would overflow.
func (s *State) rebase(p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	by := l.Level
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		tag := &s.Nodes[c].Lanes[e].Tag
		*tag = max(*tag-by, -by)
	}
	l.Level, l.Orphan = 0, max(l.Orphan-by, 0)
}

// tagShift makes tags, which are nanoseconds over weight, finer.
const tagShift = 10

// over divides a time by a weight.
func over(d time.Duration, weight int64) int64 {
	if d > time.Hour || d < -time.Hour { // does not fit
		return int64(d) / weight << tagShift
	}
	return int64(d) << tagShift / weight
}

// savings is how far below the level a child of p may be. With work, it may save its part of
// two periods, plus two rounds of all children with the longest request, which it may have to
// wait for. A child that was idle may save its part of two periods.
func (s *State) savings(p int32, e int, back bool) int64 {
	l := &s.Nodes[p].Lanes[e]
	d := s.Config.Credit.Period
	if !back {
		d += time.Duration(l.Rivals) * min(s.Engines[e].Longest, time.Hour/time.Duration(max(l.Rivals, 1)))
	}
	return over(2*d, max(l.Live+l.Left, 1))
}

// debt is the time by which a node is ahead of its share.
func (s *State) debt(n int32, e int) time.Duration {
	if n == root {
		return 0
	}
	ahead := s.Nodes[n].Lanes[e].Tag - s.Nodes[s.Nodes[n].Parent].Lanes[e].Level
	if ahead > 1<<40 || ahead < -1<<40 {
		return time.Duration(ahead >> tagShift * s.weight(n))
	}
	return time.Duration(ahead * s.weight(n) >> tagShift)
}

// rivals counts a node among those that share its parent's time, or no longer.
func (s *State) rivals(n int32, e int, by int) {
	l, up := &s.Nodes[n].Lanes[e], &s.Nodes[s.Nodes[n].Parent].Lanes[e]
	up.Rivals += by
	up.Live += int64(by) * s.weight(n)
	if by < 0 {
		s.used(n, e)
	} else if l.Idle == up.Period {
		up.Left -= s.weight(n)
		l.Idle = -1
	}
}

// used counts a node that used an engine among those that share the period, although it has no work
// any more or waits for a semaphore. Otherwise the level would rise by all that it used.
func (s *State) used(n int32, e int) {
	p := s.Nodes[n].Parent
	s.period(p, e)
	if l, up := &s.Nodes[n].Lanes[e], &s.Nodes[p].Lanes[e]; l.Idle != up.Period {
		up.Left += s.weight(n)
		l.Idle = up.Period
	}
}

// reweigh gives a node another weight. Its debt is a time, independent of the weight. If all able
// siblings have credit, the level falls to the one with the least: while all have credit they take
// turns regardless of their weights.
func (s *State) reweigh(n int32, e, weight int) {
	p := s.Nodes[n].Parent
	s.period(p, e)
	l, up := &s.Nodes[n].Lanes[e], &s.Nodes[p].Lanes[e]
	most, some := int64(0), false
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		if l := &s.Nodes[c].Lanes[e]; l.Able > 0 && (!some || l.Tag > most) {
			most, some = l.Tag, true
		}
	}
	if some {
		up.Level = min(up.Level, most)
	}
	switch more := int64(weight) - s.weight(n); {
	case l.Able > 0:
		up.Live += more
	case l.Idle == up.Period:
		up.Left += more
	}
	l.Tag = up.Level + over(s.debt(n, e), int64(weight))
}

// join gives a new node its place among its siblings: neither credit nor debt, but for the
// debts that removed siblings left.
func (s *State) join(n int32) {
	for e := range s.Engines {
		s.Nodes[n].Lanes[e] = Lane{Share: Share{Idle: -1, Period: s.Period}, Rest: Rest{Tokens: s.fullCap(n), Filled: s.Now}, Books: Books{Counted: s.Now}}
		if n == root {
			continue
		}
		l, up := &s.Nodes[n].Lanes[e], &s.Nodes[s.Nodes[n].Parent].Lanes[e]
		l.Tag, l.Overuse = max(up.Level, up.Orphan), up.Overdue
		up.Orphan, up.Overdue = 0, 0
		s.Turn++ // at the end of the round
		l.Turn = s.Turn
	}
}

// bequeath gives the debts of a group that ends to its parent, for the next child. The debts
// of a guest end with the guest.
func (s *State) bequeath(n int32) {
	node := &s.Nodes[n]
	if node.Kind != Inner || node.Parent == root {
		return
	}
	for e := range node.Lanes {
		l, up := &node.Lanes[e], &s.Nodes[node.Parent].Lanes[e]
		if l.Tag > up.Level {
			up.Orphan = max(up.Orphan, up.Level) + l.Tag - up.Level
			l.Tag = up.Level
		}
		up.Overdue += l.Overuse
		l.Overuse = 0
	}
}

// leave settles with the parent of a node that is freed. Its account and its debts stay there.
func (s *State) leave(n int32) {
	for e := range s.Engines {
		l, up := &s.Nodes[n].Lanes[e], &s.Nodes[s.Nodes[n].Parent].Lanes[e]
		up.Past.Add(l.account(s.Now))
		if l.Idle == up.Period {
			up.Left -= s.weight(n)
		}
	}
	s.bequeath(n) // for the work that ended since it was removed
}
