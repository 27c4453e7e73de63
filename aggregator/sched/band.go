package sched

import "time"

// Band: credit, use of late, and a moment for those who come back at once.

// windowNow numbers the windows in which use is measured.
func (s *Scheduler) windowNow() int64 { return int64(s.Now / s.Config.Band.Window) }

// used is what a node used in this window; of the card, its length so far.
func (s *Scheduler) used(n int32, e int) time.Duration {
	if n == root {
		return s.Now % s.Config.Band.Window
	}
	if l := &s.Nodes[n].Lanes[e]; l.UsedIn == s.windowNow() {
		return l.Used
	}
	return 0
}

// overShare tells whether a node used more than its share in this window.
func (s *Scheduler) overShare(n, p int32, e int) bool {
	w, _ := s.weight(n, e)
	all, _ := s.activeWeight(p, e)
	return float64(s.used(n, e))*float64(all) > float64(s.used(p, e))*float64(w)
}

// keepPart is what part of the time the card may be kept for somebody: one in so many.
const keepPart = 20

// chooseBand is credit, but of those with credit the ones that are over their
// share in the window go last; and before the card is given to one that is over
// it, it is kept for a moment for the one that had the last turn and used less.
func (s *Scheduler) chooseBand(p int32, e int) int32 {
	l := &s.Nodes[p].Lanes[e]
	if now := s.periodNow(); l.Window != now {
		l.Window = now
		s.reclass(p, e)
	}
	c := s.chooseCredit(p, e)
	if p != root { // below the card nobody need wait: others can go on
		return c
	}
	if c == none || !s.worthKeeping(c, e) {
		if s.endKeeping(e); c != none {
			l.Chances = 0
		}
		return c
	}
	if l.Grace == 0 && l.Chances < s.Config.Band.Chances && s.mayKeep(e) {
		l.Grace, l.KeptFrom = s.Now+s.Config.Band.Grace, s.Now
		l.Chances++
	}
	if s.Now < l.Grace {
		s.Engines[e].Wake = l.Grace
		return none
	}
	s.endKeeping(e)
	l.Chances = 0
	return c
}

// worthKeeping tells whether somebody had the last turn and used less than c, who is
// over its share and has a request that is longer than the wait.
func (s *Scheduler) worthKeeping(c int32, e int) bool {
	last := s.Nodes[root].Lanes[e].Last
	if last == none || last == c || s.busy(e) > 0 || !s.overShare(c, root, e) || s.overShare(last, root, e) || s.used(c, e) <= s.used(last, e) {
		return false
	}
	l := &s.Nodes[last].Lanes[e]
	return s.Nodes[last].Block == 0 && l.Waiting == 0 && !l.Rests && s.nextMean(c, e) > s.Config.Band.Grace
}

// nextMean is how long requests are of the channel that is next below a node.
func (s *Scheduler) nextMean(n int32, e int) time.Duration {
	for s.Nodes[n].Kind != Channel {
		q := &s.sides[n].queues[e]
		switch {
		case len(q[turns]) > 0:
			n = q[turns][0].node
		case len(q[debts]) > 0:
			n = q[debts][0].node
		default:
			return 0
		}
	}
	return s.Nodes[n].Lanes[e].Mean
}

// mayKeep tells whether the card may be kept once more: a part of the time is for
// that, some of which may be saved.
func (s *Scheduler) mayKeep(e int) bool {
	l, grace := &s.Nodes[root].Lanes[e], s.Config.Band.Grace
	l.Keep = min(l.Keep+(s.Now-l.KeepAt)/keepPart, 4*grace)
	l.KeepAt = s.Now
	return l.Keep >= grace
}

// endKeeping takes a wait off what the card may be kept.
func (s *Scheduler) endKeeping(e int) {
	l := &s.Nodes[root].Lanes[e]
	if l.Grace != 0 {
		l.Keep -= s.Now - l.KeptFrom
		l.Grace = 0
	}
}

// reclass looks anew at who of those with credit is over its share.
func (s *Scheduler) reclass(p int32, e int) {
	list := s.sides[p].queues[e][turns]
	for i := range list {
		s.looks++
		list[i].class = 0
		if s.overShare(list[i].node, p, e) {
			list[i].class = 1
		}
		s.Nodes[list[i].node].Lanes[e].Stand.Class = list[i].class
	}
	for i := len(list)/2 - 1; i >= 0; i-- {
		s.sink(p, e, turns, int32(i))
	}
	s.tellOldest(p, e)
}
