package sched

import "time"

// core is what a policy works on: the state, and where each request is.
type core struct {
	State
	policy policy
	window int // requests of one channel that may be on the card
}

// advance takes note of the time, which does not go back.
func (s *State) advance(now time.Duration) {
	if now < s.Now {
		s.Counts.BadTimes++
		return
	}
	s.Now, s.Period = now, int64(now/s.Config.Credit.Period)
}

// channel returns the node of a channel, at a time. If there is no such channel it returns none and counts
// that.
func (s *State) channel(now time.Duration, id ID) int32 {
	s.advance(now)
	if n := s.find(id); n != none && s.Nodes[n].Kind == Channel {
		return n
	}
	s.Counts.BadEvents++
	return none
}

// busy is how many entries on the card keep an engine busy.
func (s *State) busy(e int) int { return s.Nodes[root].Lanes[e].Inflight - s.Engines[e].Off }

// counts reports whether a channel's requests on the card keep an engine busy.
func (s *State) counts(c int32) bool {
	ch := &s.Nodes[c].Chan
	return !ch.Stalled && (ch.Hold == Granted || ch.Hold == Pausing)
}

// keepsBusy reports whether a node is a channel with requests that keep an engine busy.
func (s *State) keepsBusy(c int32, e int) bool {
	n := &s.Nodes[c]
	return n.Kind == Channel && n.Lanes[e].Inflight > 0 && s.counts(c)
}

// add changes how many entries of a channel wait, and how many are on the card.
func (s *core) add(c int32, e, waiting, inflight int) {
	ch := &s.Nodes[c].Chan
	if ch.OnCard == 0 && inflight > 0 {
		ch.Issued, ch.HeadFrom, ch.Run = s.Now, s.Now, 0
	}
	ch.OnCard += inflight
	if !s.counts(c) {
		s.Engines[e].Off += inflight
	} else if s.busy(e) == 0 && inflight > 0 {
		s.Engines[e].Progress = s.Now
	}
	for m := c; m != none; m = s.Nodes[m].Parent {
		l := &s.Nodes[m].Lanes[e]
		l.account(s.Now)
		l.Waiting += waiting
		l.Inflight += inflight
	}
	if ch.OnCard == 0 {
		ch.Hold = Granted
	}
	s.noteAble(c, e)
}

// noteAble takes note of whether a channel has work on an engine and waits for no semaphore.
func (s *core) noteAble(c int32, e int) {
	l, n := &s.Nodes[c].Lanes[e], 0
	if l.Waiting+l.Inflight > 0 && !s.Nodes[c].Chan.Stalled {
		n = 1
	}
	if n -= l.Able; n == 0 {
		return
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		s.period(s.Nodes[m].Parent, e)
		l := &s.Nodes[m].Lanes[e]
		if l.Able += n; l.Able != max(n, 0) {
			continue // there are others at or below it
		}
		s.rivals(m, e, n)
		if m != c && s.isGroup(m) {
			s.Engines[e].Groups += n
		}
		if n > 0 {
			s.policy.Arrive(m, e)
		}
	}
	s.Nodes[root].Lanes[e].Able += n
}

// setHold changes whether a channel waits for a semaphore, and whether its requests have a turn. The
// expected time of requests that do not count is not charged.
func (s *core) setHold(c int32, stalled bool, h Hold) {
	ch := &s.Nodes[c].Chan
	if ch.OnCard == 0 {
		h = Granted
	}
	if h == Released && !stalled {
		s.Released = min(s.Released, c)
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
			s.charge(c, e, s.estimate(c, e, n))
		default:
			eng.Off += n
			s.charge(c, e, Use{Expected: -l.Pending})
		}
		s.noteAble(c, e)
	}
}

// length is the expected length of a channel's next request. An unknown one counts as too
// long for goesAhead, and too short for a debt.
func (s *State) length(c int32, e int) time.Duration {
	if mean := s.Nodes[c].Lanes[e].Mean; mean != 0 {
		return mean
	}
	return min(s.Config.Ahead, s.Config.Credit.Period)
}

// estimate is what n requests of a channel are expected to use. Many unknown ones count as one.
func (s *State) estimate(c int32, e, n int) Use {
	if s.Nodes[c].Lanes[e].Mean == 0 {
		n = 1
	}
	return Use{Expected: s.length(c, e) * time.Duration(n)}
}

// charge charges what a channel used, or is expected to use, to it and to all above it.
func (s *core) charge(c int32, e int, u Use) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.period(m, e)
		l := &s.Nodes[m].Lanes[e]
		l.Pending += u.Expected
		l.Account.Busy += u.Busy
		if u.Busy > 0 && m != root {
			s.spend(m, e, u.Busy)
			if l.Able == 0 {
				s.used(m, e)
			}
		}
	}
	s.policy.Charge(c, e, u)
}

// takeOff removes n entries of a channel from the card, with their expected time.
func (s *core) takeOff(c int32, e, n int) {
	l := &s.Nodes[c].Lanes[e]
	back := l.Pending
	if n < l.Inflight {
		back = l.Pending * time.Duration(n) / time.Duration(l.Inflight)
	}
	s.charge(c, e, Use{Expected: -back})
	s.add(c, e, 0, -n)
}

// move makes a channel's entries those of another engine than the one that they were expected to
// use. Their claims are compared with those of others that use that engine.
func (s *core) move(c int32, e int) {
	node := &s.Nodes[c]
	old := int(node.Chan.Engine)
	node.Chan.Engine = uint8(e)
	waiting, inflight := node.Lanes[old].Waiting, node.Lanes[old].Inflight
	s.add(c, old, -waiting, 0)
	s.add(c, e, waiting, 0)
	if inflight > 0 {
		s.add(c, e, 0, inflight)
		if s.counts(c) {
			s.charge(c, e, s.estimate(c, e, inflight))
		}
		s.takeOff(c, old, inflight)
	}
	s.book(c, old, Account{Entries: -int64(waiting + inflight)})
	s.book(c, e, Account{Entries: int64(waiting + inflight)})
}

// drop discards a channel's waiting entries and, if it was aborted, those on the card.
func (s *core) drop(c int32, aborted bool) {
	node := &s.Nodes[c]
	for e := range node.Lanes {
		l := &node.Lanes[e]
		n := l.Waiting
		s.Nodes[s.guestOf(c)].Guest.Queued -= n
		s.add(c, e, -n, 0)
		if k := l.Inflight; aborted && k > 0 {
			s.takeOff(c, e, k)
			n += k
		}
		s.book(c, e, Account{Dropped: int64(n)})
	}
	node.Chan.Batches = node.Chan.Batches[:0]
}

// released finds the first channel whose requests were released by a semaphore and got no turn.
func (s *State) released() int32 {
	for ; int(s.Released) < len(s.Nodes); s.Released++ {
		if n := &s.Nodes[s.Released]; n.Kind == Channel && n.Chan.Hold == Released && !n.Chan.Stalled {
			return s.Released
		}
	}
	return none
}
