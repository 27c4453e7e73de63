package sched

import "time"

// How work ends: done by the card, aborted, or not wanted any more.

// Done is what the card did for a channel since it was last asked.
type Done struct {
	Channel ID
	Engine  int
	Entries int           // that ended; zero if one goes on
	Busy    time.Duration // the engine worked for them
}

// Complete tells what the card has done. What cannot be is counted, and has no
// effect.
func (s *Scheduler) Complete(now time.Duration, d Done) {
	s.advance(now)
	c := s.channel(d.Channel)
	if c == none || d.Engine < 0 || d.Engine >= len(s.Engines) || d.Entries < 0 {
		s.Counts.UnknownChannel++
		return
	}
	from := s.whence(c, d.Engine)
	if from < 0 {
		s.Counts.UnknownWork += uint64(max(1, d.Entries))
		return
	}
	node := &s.Nodes[c]
	ch := &node.Chan
	busy := d.Busy
	if most := s.Now - ch.Issued - ch.Charged; busy < 0 || busy > most {
		s.Counts.BadTime++
		busy = max(0, min(busy, most))
	}
	ch.Charged += busy
	ch.Run += busy
	eng := &s.Engines[d.Engine]
	if d.Entries == 0 {
		s.charge(c, d.Engine, busy, busy)
		return
	}
	run := ch.Run
	for left := d.Entries; left > 0; {
		if from = s.whence(c, d.Engine); from < 0 {
			s.Counts.UnknownWork += uint64(left)
			break
		}
		n := min(left, node.Lanes[from].Inflight)
		s.complete(c, from, n)
		left -= n
	}
	each := run / time.Duration(d.Entries)
	eng.Longest = max(eng.Longest, each)
	eng.Progress = s.Now
	ch.HeadFrom, ch.Run = s.Now, 0
	l := &node.Lanes[d.Engine]
	l.Mean = mean(l.Mean, each)
	s.charge(c, d.Engine, busy, busy)
	s.overrun(c, d.Engine)
	s.sampled(c, d.Engine, d.Entries, run)
	s.cleared(c)
	if d.Engine != int(ch.Engine) {
		s.move(c, d.Engine)
	}
	if node.Block&Dying != 0 {
		s.reap(c)
	}
}

// mean follows the length of requests, so that few of another kind change little
// and many much.
func mean(old, v time.Duration) time.Duration {
	if old == 0 {
		return v
	}
	return old + (v-old)/8
}

// whence is the engine on whose account entries of a channel are on the card:
// the one that did them, or the one for which they were forwarded.
func (s *Scheduler) whence(c int32, e int) int {
	lanes := s.Nodes[c].Lanes
	if lanes[e].Inflight > 0 {
		return e
	}
	for i := range lanes {
		if lanes[i].Inflight > 0 {
			return i
		}
	}
	return -1
}

// complete takes n entries off the card that were forwarded for an engine. They
// are written down where they were counted, whichever engine did them.
func (s *Scheduler) complete(c int32, e, n int) {
	s.takeOff(c, e, n)
	for m := c; m != none; m = s.Nodes[m].Parent {
		a := &s.Nodes[m].Lanes[e].Account
		a.Done += int64(n)
		a.Last = s.Now
	}
}

// takeOff takes n entries of a channel off the card, with what was foretold for
// them.
func (s *Scheduler) takeOff(c int32, e, n int) {
	l := &s.Nodes[c].Lanes[e]
	back := l.Pending
	if n < l.Inflight {
		back = l.Pending * time.Duration(n) / time.Duration(l.Inflight)
	}
	s.expect(c, e, -back)
	s.wasAble(c, e, func() { s.addInflight(c, e, -n) })
	s.charge(c, e, 0, -back)
}

// move lets what a channel has waiting take turns on another engine.
func (s *Scheduler) move(c int32, e int) {
	node := &s.Nodes[c]
	old := int(node.Chan.Engine)
	node.Chan.Engine = uint8(e)
	if n := node.Lanes[old].Waiting; n > 0 {
		entries := int64(n)
		s.wasAble(c, old, func() { s.addWaiting(c, old, -n) })
		s.wasAble(c, e, func() { s.addWaiting(c, e, n) })
		for m := c; m != none; m = s.Nodes[m].Parent { // they are the new engine's
			s.Nodes[m].Lanes[old].Account.Entries -= entries
			s.Nodes[m].Lanes[e].Account.Entries += entries
		}
	}
	s.settle(c, old)
	s.settle(c, e)
}

// drop forgets what a channel has waiting and, if it was aborted, on the card.
func (s *Scheduler) drop(c int32, aborted bool) {
	node := &s.Nodes[c]
	for e := range node.Lanes {
		l := &node.Lanes[e]
		n := l.Waiting
		if n > 0 {
			s.Nodes[s.guestOf(c)].Guest.Queued -= n
			s.wasAble(c, e, func() { s.addWaiting(c, e, -n) })
		}
		if k := l.Inflight; aborted && k > 0 {
			s.takeOff(c, e, k)
			n += k
		}
		if n > 0 {
			for m := c; m != none; m = s.Nodes[m].Parent {
				s.Nodes[m].Lanes[e].Account.Dropped += int64(n)
			}
		}
		s.settle(c, e)
	}
	node.Chan.Batches = node.Chan.Batches[:0]
}

// Withdraw tells that what a channel has waiting is no longer wanted. It returns how
// many entries those were. What is on the card stays there.
func (s *Scheduler) Withdraw(now time.Duration, ch ID) (n int) {
	s.advance(now)
	c := s.channel(ch)
	if c == none {
		s.Counts.UnknownChannel++
		return 0
	}
	for e := range s.Engines {
		n += s.Nodes[c].Lanes[e].Waiting
	}
	s.drop(c, false)
	return n
}
