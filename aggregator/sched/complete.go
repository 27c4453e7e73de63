package sched

import "time"

// Done is a channel's use of the card since the last call.
type Done struct {
	Channel ID
	Engine  int
	Entries int           // that ended; zero if one continues
	Busy    time.Duration // the engine worked for them
}

// Complete reports completed work. Impossible reports are counted and have no effect.
func (s *Scheduler) Complete(now time.Duration, d Done) {
	s.advance(now)
	c := s.channel(d.Channel)
	if c == none {
		return
	}
	node := &s.Nodes[c]
	ch := &node.Chan
	if d.Engine < 0 || d.Engine >= len(s.Engines) || d.Entries < 0 || d.Entries > 0 && ch.OnCard == 0 {
		s.Counts.BadEvents++
		return
	}
	busy := d.Busy
	if most := s.Now - ch.Made - ch.Charged; busy < 0 || busy > most {
		s.Counts.BadTimes++
		busy = max(0, min(busy, most))
	}
	if busy > 0 {
		ch.Metered = s.Now
	}
	if d.Engine != int(ch.Engine) && (busy > 0 || d.Entries > 0) {
		s.move(c, d.Engine)
	}
	ch.Charged += busy
	if d.Entries > 0 || !ch.Stalled { // looks at a semaphore are charged, but are no part of the request
		ch.Run += busy
	}
	eng := &s.Engines[d.Engine]
	if d.Entries == 0 {
		s.charge(c, d.Engine, busy, busy)
		s.policy.done(c, d.Engine, 0, busy, ch.Run)
		s.exceeds(c, d.Engine)
		return
	}
	run := ch.Run
	n := min(d.Entries, ch.OnCard)
	if n < d.Entries {
		s.Counts.BadEvents++
	}
	s.complete(c, d.Engine, n)
	each := run / time.Duration(d.Entries)
	eng.Longest = max(eng.Longest, min(each, s.Now-ch.HeadFrom))
	eng.Progress = s.Now
	ch.HeadFrom, ch.Run = s.Now, 0
	l := &node.Lanes[d.Engine]
	l.Mean = mean(l.Mean, each)
	s.charge(c, d.Engine, busy, busy)
	s.policy.done(c, d.Engine, d.Entries, busy, run)
	s.cleared(c)
	if node.Block&Dying != 0 {
		s.reap(c)
	}
}

// mean follows the length of requests.
func mean(old, v time.Duration) time.Duration {
	if old == 0 {
		return v
	}
	return old + (v-old)/8
}

// complete removes n entries from the card.
func (s *Scheduler) complete(c int32, e, n int) {
	s.takeOff(c, e, n)
	s.book(c, e, Account{Done: int64(n), Last: s.Now})
}

// takeOff removes n entries of a channel from the card, with their expected time.
func (s *Scheduler) takeOff(c int32, e, n int) {
	l := &s.Nodes[c].Lanes[e]
	back := l.Pending
	if n < l.Inflight {
		back = l.Pending * time.Duration(n) / time.Duration(l.Inflight)
	}
	s.expect(c, e, -back)
	s.addInflight(c, e, -n)
}

// move makes a channel's entries those of another engine than the one that they were expected to
// use. Their claims are compared with those of others that use that engine.
func (s *Scheduler) move(c int32, e int) {
	node := &s.Nodes[c]
	old := int(node.Chan.Engine)
	node.Chan.Engine = uint8(e)
	waiting, inflight := node.Lanes[old].Waiting, node.Lanes[old].Inflight
	s.addWaiting(c, old, -waiting)
	s.addWaiting(c, e, waiting)
	if inflight > 0 {
		s.addInflight(c, e, inflight)
		if s.counts(c) {
			s.expect(c, e, s.estimate(c, e, inflight))
		}
		s.takeOff(c, old, inflight)
	}
	s.book(c, old, Account{Entries: -int64(waiting + inflight)})
	s.book(c, e, Account{Entries: int64(waiting + inflight)})
}

// drop discards a channel's waiting entries and, if it was aborted, those on the card.
func (s *Scheduler) drop(c int32, aborted bool) {
	node := &s.Nodes[c]
	for e := range node.Lanes {
		l := &node.Lanes[e]
		n := l.Waiting
		s.Nodes[s.guestOf(c)].Guest.Queued -= n
		s.addWaiting(c, e, -n)
		if k := l.Inflight; aborted && k > 0 {
			s.takeOff(c, e, k)
			n += k
		}
		s.book(c, e, Account{Dropped: int64(n)})
	}
	node.Chan.Batches = node.Chan.Batches[:0]
}

// Withdraw drops a channel's waiting entries. Entries on the card stay there.
func (s *Scheduler) Withdraw(now time.Duration, ch ID) {
	s.advance(now)
	if c := s.channel(ch); c != none {
		s.drop(c, false)
	}
}
