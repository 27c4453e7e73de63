package sched

import "time"

// Added returns how many entries a doorbell added to a ring of a power of two. It is false
// if an index is not in the ring, or if the ring has no room for so many besides those that
// wait: one entry stays free, or a full ring would look empty.
func Added(old, put, size uint32, waiting int) (n int, ok bool) {
	if size == 0 || size&(size-1) != 0 || old >= size || put >= size {
		return 0, false
	}
	n = int((put - old) & (size - 1))
	return n, waiting >= 0 && n+waiting < int(size)
}

// Submit adds n ready entries to a channel. It returns how many were accepted. The others
// are over the guest's limit; submit them again when some are done.
func (s *Scheduler) Submit(now time.Duration, ch ID, n int) (accepted int) {
	c := s.channel(now, ch)
	if c == none || s.Nodes[c].Block&Dying != 0 {
		return 0
	}
	guest := &s.Nodes[s.guestOf(c)]
	limit := guest.Config.Queued
	if limit == 0 {
		limit = s.Config.Limits.Queued
	}
	accepted = max(0, min(n, limit-guest.Guest.Queued))
	s.Counts.Refused += uint64(max(0, n-accepted))
	if accepted == 0 {
		return 0
	}
	guest.Guest.Queued += accepted
	node := &s.Nodes[c]
	e := int(node.Chan.Engine)
	s.add(c, e, accepted, 0)
	s.book(c, e, Account{Requests: 1, Entries: int64(accepted)})
	s.Turn++
	if b := node.Chan.Batches; len(b) == maxBatches {
		b[maxBatches-1].N += accepted
	} else {
		node.Chan.Batches = append(b, Batch{s.Turn, s.Passes, accepted})
	}
	return accepted
}

// Forward is a decision: the card gets so many entries more of a channel, and the channel is
// resumed if it is paused. Or the channel is to be paused: then Paused is called when it is.
type Forward struct {
	Channel ID
	Engine  int // with which they are expected to use it
	Entries int
	Pause   bool
}

// Next returns what to forward now, until there is nothing.
func (s *Scheduler) Next(now time.Duration) (Forward, bool) {
	s.advance(now)
	s.watchdog().watch()
	for e := range s.Engines {
		s.Engines[e].Wake = never
		if c, n := s.policy.Next(e); c != none {
			s.forward(c, e, n)
			return Forward{Channel: s.id(c), Engine: e, Entries: n}, true
		}
	}
	c := s.released()
	for e := 0; c == none && e < len(s.Engines); e++ {
		c = s.policy.Timer(e)
	}
	if c != none {
		s.setHold(c, false, Pausing)
		return Forward{Channel: s.id(c), Engine: int(s.Nodes[c].Chan.Engine), Pause: true}, true
	}
	s.Passes++
	return Forward{}, false
}

// forward moves entries of a channel to the card, or lets those that are there continue.
func (s *Scheduler) forward(c int32, e, n int) {
	ch := &s.Nodes[c].Chan
	if n == 0 {
		s.setHold(c, false, Granted)
		return
	}
	if ch.OnCard == 0 {
		ch.Seq = ch.Batches[0].Seq
	}
	held := 0
	for left, b := n, ch.Batches; left > 0; {
		k := min(left, b[0].N)
		if b[0].Pass < s.Passes {
			held += k
		}
		left -= k
		if b[0].N -= k; b[0].N == 0 {
			copy(b, b[1:])
			b = b[:len(b)-1]
			ch.Batches = b
		}
	}
	s.book(c, e, Account{Held: int64(held)})
	s.add(c, e, -n, n)
	s.Nodes[s.guestOf(c)].Guest.Queued -= n
	s.charge(c, e, s.estimate(c, e, n))
}

// Timer is when to call Next although nothing happened. Call Complete for the channels that run before.
func (s *Scheduler) Timer() time.Duration {
	t := min(s.watchdog().timer(), s.restEnd())
	for e := range s.Engines {
		t = min(t, s.Engines[e].Wake)
	}
	return t
}

// Running reports the channel that an engine works for, 0 for none. Then the watchdog can
// tell which of many requests does not end.
func (s *Scheduler) Running(now time.Duration, engine int, ch ID) {
	s.advance(now)
	if engine >= 0 && engine < len(s.Engines) {
		s.Engines[engine].Running = ch
	}
}

// Done is a channel's use of the card since the last call.
type Done struct {
	Channel ID
	Engine  int
	Entries int           // that ended; zero if one continues
	Busy    time.Duration // the engine worked for them
}

// Complete reports completed work. Impossible reports are counted and have no effect.
func (s *Scheduler) Complete(now time.Duration, d Done) {
	c := s.channel(now, d.Channel)
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
	use := Use{Metered: true, Busy: busy, Entries: d.Entries, Run: ch.Run}
	if d.Entries == 0 {
		s.charge(c, d.Engine, use)
		s.watchdog().exceeds(c, d.Engine)
		return
	}
	n := min(d.Entries, ch.OnCard)
	if n < d.Entries {
		s.Counts.BadEvents++
	}
	s.takeOff(c, d.Engine, n)
	s.book(c, d.Engine, Account{Done: int64(n), Last: s.Now})
	each := use.Run / time.Duration(d.Entries)
	eng, l := &s.Engines[d.Engine], &node.Lanes[d.Engine]
	eng.Longest = max(eng.Longest, min(each, s.Now-ch.HeadFrom))
	eng.Progress = s.Now
	ch.HeadFrom, ch.Run = s.Now, 0
	if l.Mean == 0 {
		l.Mean = each
	} else { // follow the length of requests
		l.Mean += (each - l.Mean) / 8
	}
	s.charge(c, d.Engine, use)
	s.watchdog().cleared(c)
	s.reap(c)
}

// Stall reports that a channel waits for a semaphore on the card, or no longer. While it
// waits, its requests use no engine, so others continue. Afterwards they need a turn.
func (s *Scheduler) Stall(now time.Duration, ch ID, on bool) {
	c := s.channel(now, ch)
	if c == none || s.Nodes[c].Chan.Stalled == on {
		return
	}
	h := s.Nodes[c].Chan.Hold
	if !on && h == Granted && s.Nodes[c].Block&Dying == 0 {
		h = Released
	}
	s.setHold(c, on, h)
}

// Underway reports that the card has begun an entry of a channel that it does not run yet, and that
// has no other. The entry needs a turn to go on.
func (s *Scheduler) Underway(now time.Duration, ch ID) {
	c := s.channel(now, ch)
	if c == none {
		return
	}
	s.Turn++
	e := int(s.Nodes[c].Chan.Engine)
	s.Nodes[c].Chan.Hold, s.Nodes[c].Chan.Seq = Paused, s.Turn
	s.add(c, e, 0, 1)
	s.book(c, e, Account{Entries: 1})
}

// Paused reports that a channel that was to be paused has left the card's engines. A card that
// does not interrupt a request completes it before.
func (s *Scheduler) Paused(now time.Duration, ch ID) {
	if c := s.channel(now, ch); c != none && s.Nodes[c].Chan.Hold == Pausing {
		s.setHold(c, s.Nodes[c].Chan.Stalled, Paused)
	}
}

// Withdraw drops a channel's waiting entries. Entries on the card stay there.
func (s *Scheduler) Withdraw(now time.Duration, ch ID) {
	if c := s.channel(now, ch); c != none {
		s.drop(c, false)
	}
}
