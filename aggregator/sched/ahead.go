package sched

import "time"

// An engine would idle between two short requests, because the scheduler polls the card in
// between. So it may get a short request while it still works on another, if that is the
// request that it would get next.

// mostAhead is how many requests may be on an engine beyond Depth. It bounds the long
// requests that a guest with short ones so far can send before the others' turn.
const mostAhead = 3

// mayAdd reports whether an engine with Depth requests may have one more.
func (s *Scheduler) mayAdd(e int) bool {
	return s.Config.Ahead > 0 && s.ahead && s.busy(e) < s.maxOnEngine()
}

// maxOnEngine is the largest number of requests that may be on an engine.
func (s *Scheduler) maxOnEngine() int {
	if s.Config.Ahead > 0 {
		return s.Config.Depth + mostAhead
	}
	return s.Config.Depth
}

// goesAhead reports whether a channel's next request may go to an engine that has Depth of
// them: it is short, the requests before it are short and not late, and no channel on the
// card has an older claim. If only time is missing, Wake is when to try again.
func (s *Scheduler) goesAhead(c int32, e int) bool {
	mean := s.Nodes[c].Lanes[e].Mean
	if mean == 0 || mean > s.Config.Ahead {
		return false
	}
	longest := time.Duration(0)
	for n := range s.Nodes {
		r := int32(n)
		switch {
		case !s.keepsBusy(r, e):
		case s.claims(r, c, e):
			return false
		default:
			longest = max(longest, s.length(r, e))
		}
	}
	since := s.Engines[e].Progress
	if s.Now > since+longest+s.Config.Ahead {
		return false // it is late, so its end is unknown
	}
	at := since + s.Nodes[root].Lanes[e].Pending - s.Config.Ahead
	if s.Now < at {
		s.Engines[e].Wake = min(s.Engines[e].Wake, at)
		return false
	}
	return true
}

// claims reports whether channel r, all of whose requests are on the card, would have the
// turn before c if it had more.
func (s *Scheduler) claims(r, c int32, e int) bool {
	if r == c {
		return false
	}
	for s.Nodes[r].Parent != s.Nodes[c].Parent { // to two siblings
		if s.depth(r) >= s.depth(c) {
			r = s.Nodes[r].Parent
		} else {
			c = s.Nodes[c].Parent
		}
	}
	a, b := &s.Nodes[r], &s.Nodes[c]
	if r == c || a.Block != 0 || s.rests(r, e) || s.ready(r, e) {
		return false
	}
	if a.Config.Priority != b.Config.Priority {
		return a.Config.Priority > b.Config.Priority
	}
	return s.byTag && !s.isGroup(a.Parent) && a.Lanes[e].Tag < b.Lanes[e].Tag
}

func (s *Scheduler) depth(n int32) (d int) {
	for ; n != root; n = s.Nodes[n].Parent {
		d++
	}
	return d
}

// length is the expected length of a channel's next request. An unknown one counts as too
// long for goesAhead, and too short for a debt.
func (s *Scheduler) length(c int32, e int) time.Duration {
	if mean := s.Nodes[c].Lanes[e].Mean; mean != 0 {
		return mean
	}
	return min(s.Config.Ahead, s.Config.Credit.Period)
}

// estimate is the expected time of n requests of a channel. Many unknown ones count as one.
func (s *Scheduler) estimate(c int32, e, n int) time.Duration {
	if s.Nodes[c].Lanes[e].Mean == 0 {
		n = 1
	}
	return s.length(c, e) * time.Duration(n)
}

// expect adds to the expected time of a channel's requests on the card, and charges it.
func (s *Scheduler) expect(c int32, e int, d time.Duration) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Pending += d
	}
	s.charge(c, e, 0, d)
}
