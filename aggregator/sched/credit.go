package sched

import "time"

// A parent's Level is the tag of a child that is neither ahead of its share nor behind. Each
// period it rises by the time that its children shared, over their weight. So a child's credit
// is its distance below the level, times its weight, and giving credit to all is one addition.

// periodNow numbers the credit periods.
func (s *Scheduler) periodNow() int64 { return int64(s.Now / s.Config.Credit.Period) }

// period gives credit to the children of p for the periods that have ended. They share what
// the node received, which is less than the time on a card that rests between requests.
func (s *Scheduler) period(p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	now := s.periodNow()
	if now == l.Period {
		return
	}
	if w := l.Live + l.Left; w > 0 && !s.ownLevel {
		l.Level += over(l.Received, w)
	}
	l.Period, l.Received, l.Left = now, 0, 0
	if l.Level > 1<<60 {
		s.rebase(p, e)
	}
}

// rebase counts tags from the level on, before they would overflow.
func (s *Scheduler) rebase(p int32, e int) {
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

func (s *Scheduler) weight(n int32) int64 { return int64(s.Nodes[n].Config.Weight) }

// savings is how far below the level a child of p may be. With work, it may save its part of
// two periods, plus two rounds of all children with the longest request, which it may have to
// wait for. A child that was idle may save its part of two periods.
func (s *Scheduler) savings(p int32, e int, back bool) int64 {
	l := &s.Nodes[p].Lanes[e]
	d := s.Config.Credit.Period
	if !back {
		d += time.Duration(l.Rivals) * min(s.Engines[e].Longest, time.Hour/time.Duration(max(l.Rivals, 1)))
	}
	return over(2*d, max(l.Live+l.Left, 1))
}

// charge records that an engine worked for a channel (busy), and adds time to the tags
// (served).
func (s *Scheduler) charge(c int32, e int, busy, served time.Duration) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.period(m, e)
		l := &s.Nodes[m].Lanes[e]
		l.Account.Busy += busy
		l.Received += busy
		if busy > 0 && m != root {
			s.spend(m, e, busy)
			if l.Able == 0 {
				s.shares(m, e)
			}
		}
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		s.policy.serve(m, e, busy, served)
	}
}

// shares counts a node that used an engine among those that share the period, although it has no work
// any more or waits for a semaphore. Otherwise the level would rise by all that it used.
func (s *Scheduler) shares(n int32, e int) {
	p := s.Nodes[n].Parent
	s.period(p, e)
	if l, up := &s.Nodes[n].Lanes[e], &s.Nodes[p].Lanes[e]; l.Idle != up.Period {
		up.Left += s.weight(n)
		l.Idle = up.Period
	}
}

// debt is the time by which a node is ahead of its share.
func (s *Scheduler) debt(n int32, e int) time.Duration {
	if n == root {
		return 0
	}
	ahead := s.Nodes[n].Lanes[e].Tag - s.Nodes[s.Nodes[n].Parent].Lanes[e].Level
	if ahead > 1<<40 || ahead < -1<<40 {
		return time.Duration(ahead >> tagShift * s.weight(n))
	}
	return time.Duration(ahead * s.weight(n) >> tagShift)
}

// rise lifts the level to a node that has the next turn although it is in debt, if all
// waiting nodes are. Otherwise those that are always there would gather debt for the time that
// others did not want, and a new node would have the engine for as long.
func (s *Scheduler) rise(n int32, e int) {
	p := s.Nodes[n].Parent
	l, tag := &s.Nodes[p].Lanes[e], s.Nodes[n].Lanes[e].Tag
	if !s.byTag || s.isGroup(p) || tag <= l.Level {
		return
	}
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		if s.Nodes[c].Lanes[e].Tag < l.Level && s.ready(c, e) {
			return
		}
	}
	l.Level = tag
}

// fall is the reverse of rise, for a change of weights: if all able children of p have
// credit, it lowers the level to the one with the least. While all have credit they take
// turns regardless of their weights.
func (s *Scheduler) fall(p int32, e int) {
	most, some := int64(0), false
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		if l := &s.Nodes[c].Lanes[e]; l.Able > 0 && (!some || l.Tag > most) {
			most, some = l.Tag, true
		}
	}
	if l := &s.Nodes[p].Lanes[e]; some {
		l.Level = min(l.Level, most)
	}
}

// credit lets siblings with credit take turns, then serves the one with the least debt for its
// weight.
type credit struct{ plain }

// inDebt is the class of those without credit.
const inDebt = 2

func (s credit) rank(n int32, e int) rank {
	if l := &s.Nodes[n].Lanes[e]; l.Tag >= s.Nodes[s.Nodes[n].Parent].Lanes[e].Level {
		return rank{inDebt, l.Tag}
	}
	return s.plain.rank(n, e)
}

func (s credit) next(p int32, e int) int32 {
	s.period(p, e)
	return s.first(p, e)
}

// yields compares debts as if m had had what it has on the card. Those with credit take turns.
func (s credit) yields(m, p int32, e int) bool {
	yields, _ := s.compare(s.next(p, e), m, e)
	return yields
}

// compare reports whether m yields to its ready sibling best, and whether that is because it is
// best's turn although both have credit.
func (s credit) compare(best, m int32, e int) (yields, inTurn bool) {
	if best == none || best == m {
		return false, false
	}
	if d := s.Nodes[best].Config.Priority - s.Nodes[m].Config.Priority; d != 0 {
		return d > 0, false
	}
	l, its := &s.Nodes[m].Lanes[e], s.Nodes[best].Lanes[e].Tag
	tag, level := l.Tag-over(l.Pending, s.weight(m)), s.Nodes[s.Nodes[m].Parent].Lanes[e].Level
	if tag < level {
		return its < level, its < level
	}
	return its < tag, false
}
