package sched

import "time"

// Requests that follow each other with a look at the card in between leave it idle for
// as long as that takes. So an engine may get a short request while it has still one
// to do, if that keeps to whose turn it is: what is forwarded early is what would be
// forwarded when the engine has nothing left.

// mostAhead is how many requests may be on an engine because of Config.Ahead, besides
// Depth. What is foretold may be wrong, above all if somebody wants it to be: then so
// many long requests stand before everybody else's.
const mostAhead = 3

// mayAdd tells whether an engine that has Depth requests may have one more. Who has a
// slice has it also between two requests, and dfq forwards at once but for samples.
func (s *Scheduler) mayAdd(e int) bool {
	return s.Config.Ahead > 0 && s.Config.Policy != DFQ && s.kinds[Timeslice] == 0 && s.busy(e) < s.atOnce()
}

// atOnce is how many requests may be on an engine, of whoever has turns by credit.
func (s *Scheduler) atOnce() int {
	if s.Config.Ahead > 0 {
		return s.Config.Depth + mostAhead
	}
	return s.Config.Depth
}

// goesAhead tells whether a channel's next request may go to an engine that has Depth
// of them: it is short, so is what is before it, which has not taken longer than was
// foretold, and nobody has an older claim who will submit the next request when the one
// on the card is done. If it may go later, and nothing else happens until then, the
// engine says when.
func (s *Scheduler) goesAhead(c int32, e int) bool {
	mean := s.Nodes[c].Lanes[e].Mean
	if mean == 0 || mean > s.Config.Ahead {
		return false
	}
	longest := time.Duration(0) // of what is on the card, by what is known
	for _, r := range s.loaded[e] {
		if s.claims(r, c, e) {
			return false
		}
		if !s.Nodes[r].Chan.Stalled {
			longest = max(longest, s.length(r, e))
		}
	}
	since := s.Engines[e].Progress
	if s.Now > since+longest+s.Config.Ahead {
		return false // what was foretold is wrong: nobody knows when the request ends
	}
	at := since + s.foretold[e] - s.Config.Ahead
	if s.Now < at {
		s.Engines[e].Wake = min(s.Engines[e].Wake, at)
		return false
	}
	return true
}

// claims tells whether a channel that has nothing but what is on the card would have
// the turn in place of c if it had more. One that has more was not chosen.
func (s *Scheduler) claims(r, c int32, e int) bool {
	if r == c || s.Nodes[r].Chan.Stalled {
		return false
	}
	for s.over(r) != s.over(c) { // to two siblings
		if s.depth(r) >= s.depth(c) {
			r = s.over(r)
		} else {
			c = s.over(c)
		}
	}
	if r == c || s.Nodes[r].Block != 0 || s.Nodes[r].Lanes[e].Rests || s.sides[r].slots[e].pos != none {
		return false
	}
	if a, b := s.Nodes[r].Config.Priority, s.Nodes[c].Config.Priority; a != b {
		return a > b
	}
	d := s.discipline(s.over(r))
	return (d == Credit || d == Band) && s.Nodes[r].Lanes[e].Tag < s.Nodes[c].Lanes[e].Tag
}

// depth is how far a node is from the card, as it takes turns.
func (s *Scheduler) depth(n int32) (d int) {
	for ; n != root; n = s.over(n) {
		d++
	}
	return d
}

// length is how long a channel's next request is thought to be. If it has done none, that
// is not so short that another goes ahead behind it, nor so long that it weighs as a debt.
func (s *Scheduler) length(c int32, e int) time.Duration {
	if mean := s.Nodes[c].Lanes[e].Mean; mean != 0 {
		return mean
	}
	return min(s.Config.Ahead, s.Config.Credit.Period)
}

// expect adds to what is foretold of a channel's work on the card. While it waits for
// a semaphore it keeps no engine busy.
func (s *Scheduler) expect(c int32, e int, d time.Duration) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Pending += d
	}
	s.forecast(c, e, d)
}

// forecast is of the engine alone.
func (s *Scheduler) forecast(c int32, e int, d time.Duration) {
	if !s.Nodes[c].Chan.Stalled {
		s.foretold[e] += d
	}
}

// load notes that a channel has requests on an engine, unload that it has none any more.
func (s *Scheduler) load(c int32, e int) {
	s.sides[c].slots[e].card = int32(len(s.loaded[e]))
	s.loaded[e] = append(s.loaded[e], c)
}

func (s *Scheduler) unload(c int32, e int) {
	list, at := s.loaded[e], s.sides[c].slots[e].card
	last := list[len(list)-1]
	list[at] = last
	s.sides[last].slots[e].card = at
	s.loaded[e] = list[:len(list)-1]
}

// rebuildLoaded makes what is kept of the requests on the card.
func (s *Scheduler) rebuildLoaded() {
	s.foretold = make([]time.Duration, len(s.Engines))
	s.loaded = make([][]int32, len(s.Engines))
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Channel {
			continue
		}
		for e := range s.Engines {
			l := &s.Nodes[n].Lanes[e]
			s.forecast(int32(n), e, l.Pending)
			if l.Inflight > 0 {
				s.load(int32(n), e)
			}
		}
	}
}
