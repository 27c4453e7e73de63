package sched

import "time"

// An engine would idle between two short requests, because the scheduler hears of the end of one
// before it chooses the next. So it may get a short request while it still works on another, if that is the
// request that it would get next.

// mostAhead is how many requests may be on an engine beyond Depth. It bounds the long
// requests that a guest with short ones so far can send before the others' turn.
const mostAhead = 3

// hasRoom reports whether an engine may have one request more, if it is short.
func (s *core) hasRoom(e int) bool {
	n := s.busy(e)
	return n < s.Config.Depth || s.Config.Ahead > 0 && n < s.Config.Depth+mostAhead
}

// goesAhead reports whether a channel's next request may go to an engine. If that has Depth of
// them, the request has to be short, those before it short and not late, and no channel on the
// card may have an older claim: a higher priority, or one that goes before, if before is set. If only
// time is missing, Wake is when to try again.
func (s *core) goesAhead(c int32, e int, before func(a, b int32, e int) bool) bool {
	if s.busy(e) < s.Config.Depth {
		return true
	}
	mean := s.Nodes[c].Lanes[e].Mean
	if mean == 0 || mean > s.Config.Ahead {
		return false
	}
	longest := time.Duration(0)
	for n := range s.Nodes {
		if r := int32(n); s.keepsBusy(r, e) {
			if s.claims(r, c, e, before) {
				return false
			}
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
func (s *core) claims(r, c int32, e int, before func(a, b int32, e int) bool) bool {
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
	return before != nil && before(r, c, e)
}
