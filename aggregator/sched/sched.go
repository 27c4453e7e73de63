package sched

import "time"

// Forward is a decision: so many entries more of a channel are the card's.
type Forward struct {
	Channel ID
	Engine  int // where they are thought to run
	Entries int
}

// advance is told every time that the scheduler hears. Time does not go back.
func (s *Scheduler) advance(now time.Duration) {
	if now < s.Now {
		s.Counts.Backwards++
		return
	}
	s.Now = now
	s.wakeRested()
}

// Submit tells that n entries more of a channel are ready. It returns how many
// were taken on: the others are over the guest's limit, and must be submitted
// again when some are done.
func (s *Scheduler) Submit(now time.Duration, ch ID, n int) (accepted int) {
	s.advance(now)
	c := s.channel(ch)
	if c == none || s.Nodes[c].Block&Dying != 0 {
		s.Counts.UnknownChannel++
		return 0
	}
	guest := &s.Nodes[s.guestOf(c)]
	limit := guest.Config.Queued
	if limit == 0 {
		limit = s.Config.Limits.Queued
	}
	accepted = max(0, min(n, limit-guest.Guest.Queued))
	if accepted < n {
		s.Counts.Refused += uint64(n - accepted)
	}
	if accepted == 0 {
		return 0
	}
	guest.Guest.Queued += accepted
	node := &s.Nodes[c]
	e := int(node.Chan.Engine)
	s.wasAble(c, e, func() { s.addWaiting(c, e, accepted) })
	for m := c; m != none; m = s.Nodes[m].Parent {
		a := &s.Nodes[m].Lanes[e].Account
		a.Requests++
		a.Entries += int64(accepted)
	}
	s.Turn++
	if b := node.Chan.Batches; len(b) == maxBatches {
		b[maxBatches-1].N += accepted
	} else {
		node.Chan.Batches = append(b, Batch{s.Turn, s.Passes, accepted})
	}
	s.settle(c, e)
	return accepted
}

// channel returns the node of a channel, none if it is none.
func (s *Scheduler) channel(id ID) int32 {
	n := s.find(id)
	if n != none && s.Nodes[n].Kind != Channel {
		return none
	}
	return n
}

// addWaiting changes how many entries wait, for a channel and all above it.
func (s *Scheduler) addWaiting(c int32, e, n int) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		l := &s.Nodes[m].Lanes[e]
		l.account(s.Now)
		l.Waiting += n
	}
}

func (s *Scheduler) addInflight(c int32, e, n int) {
	node := &s.Nodes[c]
	if node.Chan.OnCard == 0 && n > 0 {
		node.Chan.Issued, node.Chan.Charged, node.Chan.HeadFrom, node.Chan.Run = s.Now, 0, s.Now, 0
	}
	node.Chan.OnCard += n
	if eng := &s.Engines[e]; node.Chan.Stalled {
		eng.Stalled += n
	} else if s.busy(e) == 0 && n > 0 {
		eng.Progress = s.Now
	}
	if l := &node.Lanes[e]; l.Inflight == 0 && n > 0 {
		s.load(c, e)
	} else if l.Inflight > 0 && l.Inflight+n == 0 {
		s.unload(c, e)
	}
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Inflight += n
	}
}

// busy is how many entries on the card keep an engine busy.
func (s *Scheduler) busy(e int) int { return s.Nodes[root].Lanes[e].Inflight - s.Engines[e].Stalled }

// Next returns what to forward now, until there is nothing.
func (s *Scheduler) Next(now time.Duration) (Forward, bool) {
	s.advance(now)
	s.watch()
	for e := range s.Engines {
		if c, n := s.pick(e); c != none {
			s.forward(c, e, n)
			return Forward{s.id(c), e, n}, true
		}
	}
	s.Passes++
	return Forward{}, false
}

// pick decides which channel has the next turn on an engine, and for how many
// entries.
func (s *Scheduler) pick(e int) (c int32, n int) {
	s.Engines[e].Wake = never
	from, open := root, s.Config.Policy == None
	if s.Config.Policy == DFQ {
		if from, open = s.scope(e); from == none {
			return none, 0
		}
	}
	if s.Config.Policy == Timeslice && s.Config.Timeslice.Disengaged {
		open = true
	}
	full := !open && s.busy(e) >= s.Config.Depth
	if full && !s.mayAdd(e) {
		return none, 0
	}
	c = from
	for s.Nodes[c].Kind != Channel {
		if c = s.choose(c, e); c == none {
			return none, 0
		}
	}
	if full && !s.goesAhead(c, e) {
		return none, 0
	}
	n = 1
	if open {
		n = min(s.Nodes[c].Lanes[e].Waiting, s.window()-s.Nodes[c].Lanes[e].Inflight)
	}
	for m := c; m != from; m = s.over(m) { // to the end of the round
		s.rise(m, e)
		s.Turn++
		s.Nodes[m].Lanes[e].Turn = s.Turn
		s.Nodes[s.over(m)].Lanes[e].Last = m
	}
	return c, n
}

// choose decides which child of p has the next turn.
func (s *Scheduler) choose(p int32, e int) int32 {
	switch s.discipline(p) {
	case Credit:
		return s.chooseCredit(p, e)
	case Band:
		return s.chooseBand(p, e)
	case Timeslice:
		return s.chooseSlice(p, e)
	}
	q := &s.sides[p].queues[e]
	if len(q[turns]) == 0 {
		return none
	}
	return q[turns][0].node
}

// forward moves entries of a channel to the card.
func (s *Scheduler) forward(c int32, e, n int) {
	node := &s.Nodes[c]
	held := int64(0)
	for left, b := n, node.Chan.Batches; left > 0; {
		k := min(left, b[0].N)
		if b[0].Pass < s.Passes {
			held += int64(k)
		}
		left -= k
		if b[0].N -= k; b[0].N == 0 {
			copy(b, b[1:])
			b = b[:len(b)-1]
			node.Chan.Batches = b
		}
	}
	if held > 0 {
		for m := c; m != none; m = s.Nodes[m].Parent {
			s.Nodes[m].Lanes[e].Account.Held += held
		}
	}
	s.addWaiting(c, e, -n)
	s.addInflight(c, e, n)
	s.Nodes[s.guestOf(c)].Guest.Queued -= n
	foretold := s.length(c, e) // many of which nothing is known count as one
	if node.Lanes[e].Mean != 0 {
		foretold *= time.Duration(n)
	}
	s.expect(c, e, foretold)
	s.charge(c, e, 0, foretold)
}

// Stall tells that a channel waits for a semaphore on the card, or no longer.
// Its requests use no engine meanwhile, so they stand in nobody's way; and who it
// waits for may be anybody of its guest's.
func (s *Scheduler) Stall(now time.Duration, ch ID, on bool) {
	s.advance(now)
	c := s.channel(ch)
	if c == none {
		s.Counts.UnknownChannel++
		return
	}
	node := &s.Nodes[c]
	if node.Chan.Stalled == on {
		return
	}
	var was [MaxEngines]bool
	for e := range s.Engines {
		was[e] = s.able(c, e)
	}
	node.Chan.Stalled = on
	for e := range s.Engines {
		eng, n := &s.Engines[e], node.Lanes[e].Inflight
		switch {
		case on:
			eng.Stalled += n
			s.foretold[e] -= node.Lanes[e].Pending
		case n > 0:
			if s.busy(e) == 0 {
				eng.Progress = s.Now
			}
			eng.Stalled -= n
			s.foretold[e] += node.Lanes[e].Pending
		}
		if is := s.able(c, e); is != was[e] {
			s.tellAble(c, e, is)
		}
	}
	if !on {
		node.Chan.HeadFrom = s.Now
	}
	for e := range s.Engines {
		s.settle(c, e)
	}
}

// Running tells which channel an engine works for, if the card says so; 0 for
// none. It lets the watchdog name the one of many that does not end.
func (s *Scheduler) Running(now time.Duration, engine int, ch ID) {
	s.advance(now)
	if engine >= 0 && engine < len(s.Engines) {
		s.Engines[engine].Running = ch
	}
}

// able tells whether a channel has work on an engine and can go on with it.
func (s *Scheduler) able(c int32, e int) bool {
	l := &s.Nodes[c].Lanes[e]
	return l.Waiting+l.Inflight > 0 && !s.Nodes[c].Chan.Stalled
}

// wasAble makes a change to a channel and tells those above if it has work now,
// or has none any more.
func (s *Scheduler) wasAble(c int32, e int, change func()) {
	was := s.able(c, e)
	change()
	if is := s.able(c, e); is != was {
		s.tellAble(c, e, is)
	}
}

// tellAble counts one channel more, or less, that has work.
func (s *Scheduler) tellAble(c int32, e int, on bool) {
	n := -1
	if on {
		n = 1
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		p := s.Nodes[m].Parent
		s.period(p, e)
		l, up := &s.Nodes[m].Lanes[e], &s.Nodes[p].Lanes[e]
		was := l.Able > 0
		l.Able += n
		is := l.Able > 0
		if was == is {
			continue
		}
		w := int64(s.Nodes[m].Config.Weight)
		group := m != c && s.isGroup(m)
		if is {
			if l.Idle == up.Period {
				up.Left -= w
				l.Idle = -1
			}
			up.Live += w
			up.Rivals++
			if group {
				s.Engines[e].Flat += w
				s.Engines[e].Rivals++
			}
			s.enter(m, e)
		} else {
			up.Live -= w
			up.Rivals--
			up.Left += w
			l.Idle = up.Period
			if group {
				s.Engines[e].Flat -= w
				s.Engines[e].Rivals--
			}
		}
	}
	s.Nodes[root].Lanes[e].Able += n
}

// Timer is when to call Next although nothing happened; never if only a
// submission or a completion can change anything.
func (s *Scheduler) Timer() time.Duration {
	t := s.watchTimer()
	if len(s.rests) > 0 {
		t = min(t, s.rests[0].end)
	}
	for e := range s.Engines {
		t = min(t, s.Engines[e].Wake)
	}
	return t
}
