package sched

import (
	"fmt"
	"time"
)

// Scheduler shares a card.
type Scheduler struct {
	State
	traits
	policy policy
}

// New makes a scheduler for a card with some engines, at the time now.
func New(c Config, engines int, now time.Duration) (*Scheduler, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := Within("engines", engines, 1, MaxEngines); err != nil {
		return nil, err
	}
	s := &Scheduler{State: State{Config: c, Now: now, Engines: make([]Engine, engines)}}
	for e := range s.Engines {
		s.Engines[e] = Engine{Progress: now, Wake: never}
	}
	s.newNode(none, Inner, NodeConfig{Weight: BaseWeight})
	s.usePolicy()
	s.policy.start()
	return s, nil
}

// advance takes note of the time, which does not go back.
func (s *Scheduler) advance(now time.Duration) {
	if now < s.Now {
		s.Counts.BadTimes++
		return
	}
	s.Now = now
}

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
	s.advance(now)
	c := s.channel(ch)
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
	s.addWaiting(c, e, accepted)
	s.book(c, e, Account{Requests: 1, Entries: int64(accepted)})
	s.Turn++
	if b := node.Chan.Batches; len(b) == maxBatches {
		b[maxBatches-1].N += accepted
	} else {
		node.Chan.Batches = append(b, Batch{s.Turn, s.Passes, accepted})
	}
	return accepted
}

// addWaiting changes how many entries wait, for a channel and all above it.
func (s *Scheduler) addWaiting(c int32, e, n int) {
	for m := c; m != none; m = s.Nodes[m].Parent {
		l := &s.Nodes[m].Lanes[e]
		l.account(s.Now)
		l.Waiting += n
	}
	s.noteAble(c, e)
}

// addInflight changes how many entries are on the card.
func (s *Scheduler) addInflight(c int32, e, n int) {
	node := &s.Nodes[c]
	if node.Chan.OnCard == 0 && n > 0 {
		node.Chan.Issued, node.Chan.HeadFrom, node.Chan.Run = s.Now, s.Now, 0
	}
	node.Chan.OnCard += n
	if !s.counts(c) {
		s.Engines[e].Off += n
	} else if s.busy(e) == 0 && n > 0 {
		s.Engines[e].Progress = s.Now
	}
	for m := c; m != none; m = s.Nodes[m].Parent {
		s.Nodes[m].Lanes[e].Inflight += n
	}
	if node.Chan.OnCard == 0 {
		node.Chan.Hold = Granted
	}
	s.noteAble(c, e)
}

// busy is how many entries on the card keep an engine busy.
func (s *Scheduler) busy(e int) int { return s.Nodes[root].Lanes[e].Inflight - s.Engines[e].Off }

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
	s.watch()
	for e := range s.Engines {
		if c, n := s.pick(e); c != none {
			s.forward(c, e, n)
			return Forward{Channel: s.id(c), Engine: e, Entries: n}, true
		}
	}
	if c := s.unjust(); c != none {
		s.setHold(c, false, Pausing)
		return Forward{Channel: s.id(c), Engine: int(s.Nodes[c].Chan.Engine), Pause: true}, true
	}
	s.Passes++
	return Forward{}, false
}

// pick selects the channel that has the next turn on an engine, and the number of entries.
func (s *Scheduler) pick(e int) (c int32, n int) {
	s.Engines[e].Wake = never
	from, open := s.policy.scope(e)
	if from == none {
		return none, 0
	}
	full := !open && s.busy(e) >= s.Config.Depth
	if full && !s.mayAdd(e) {
		return none, 0
	}
	c = from
	for s.Nodes[c].Kind != Channel {
		if c = s.rules(c).next(c, e); c == none {
			return none, 0
		}
	}
	if full && !s.goesAhead(c, e) {
		return none, 0
	}
	n = 1
	if s.Nodes[c].Chan.Hold != Granted {
		n = 0
	} else if open {
		n = min(s.Nodes[c].Lanes[e].Waiting, s.window-s.Nodes[c].Lanes[e].Inflight)
	}
	for m := c; m != from; m = s.Nodes[m].Parent { // to the end of the round
		s.rise(m, e)
		s.Turn++
		s.Nodes[m].Lanes[e].Turn = s.Turn
		s.Nodes[s.Nodes[m].Parent].Lanes[e].Last = m
	}
	return c, n
}

// forward moves entries of a channel to the card, or lets those that are there continue.
func (s *Scheduler) forward(c int32, e, n int) {
	node := &s.Nodes[c]
	if n == 0 {
		s.setHold(c, false, Granted)
		return
	}
	if node.Chan.OnCard == 0 {
		node.Chan.Seq = node.Chan.Batches[0].Seq
	}
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
	s.book(c, e, Account{Held: held})
	s.addInflight(c, e, n)
	s.addWaiting(c, e, -n)
	s.Nodes[s.guestOf(c)].Guest.Queued -= n
	s.expect(c, e, s.estimate(c, e, n))
}

// Running reports the channel that an engine works for, 0 for none. Then the watchdog can
// tell which of many requests does not end.
func (s *Scheduler) Running(now time.Duration, engine int, ch ID) {
	s.advance(now)
	if engine >= 0 && engine < len(s.Engines) {
		s.Engines[engine].Running = ch
	}
}

// noteAble takes note of whether a channel has work on an engine and waits for no semaphore.
func (s *Scheduler) noteAble(c int32, e int) {
	l, n := &s.Nodes[c].Lanes[e], 0
	if l.Waiting+l.Inflight > 0 && !s.Nodes[c].Chan.Stalled {
		n = 1
	}
	if n -= l.Able; n == 0 {
		return
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
		up.Rivals += n
		up.Live += int64(n) * w
		if m != c && s.isGroup(m) {
			s.Engines[e].Groups += n
		}
		if !is {
			up.Left += w
			l.Idle = up.Period
			continue
		}
		if l.Idle == up.Period {
			up.Left -= w
			l.Idle = -1
		}
		s.policy.arrive(m, e)
	}
	s.Nodes[root].Lanes[e].Able += n
}

// Timer is when to call Next although nothing happened.
func (s *Scheduler) Timer() time.Duration {
	t := min(s.watchTimer(), s.restEnd())
	for e := range s.Engines {
		t = min(t, s.Engines[e].Wake)
	}
	return t
}

// Configure changes how the card is shared, under load. It does not touch entries that wait
// or are on the card.
func (s *Scheduler) Configure(now time.Duration, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	s.advance(now)
	old := s.Config
	for n := range s.Nodes { // periods end by the old configuration
		for e := range s.Nodes[n].Lanes {
			if s.Nodes[n].Kind == Inner {
				s.period(int32(n), e)
			}
		}
	}
	s.Config = c
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			l := &s.Nodes[n].Lanes[e]
			if c.Credit.Period != old.Credit.Period {
				l.Period, l.Idle, l.Left = s.periodNow(), -1, 0
			}
			if c.Band.Window != old.Band.Window {
				l.UsedIn, l.Used = -1, 0
			}
			l.Round = 0
			if c.Policy != old.Policy {
				l.Held, l.Holder, l.Keep, l.IdleAt = false, none, KeepState{}, never
			}
		}
	}
	s.usePolicy()
	if c.Policy != old.Policy {
		s.policy.start()
	}
	return nil
}

// Change changes the configuration of a node, under load.
func (s *Scheduler) Change(now time.Duration, id ID, c NodeConfig) error {
	s.advance(now)
	n := s.find(id)
	if n == none || n == root || s.Nodes[n].Block&Dying != 0 {
		return &Error{"node", fmt.Sprint(uint64(id)), "there is no such node"}
	}
	node := &s.Nodes[n]
	if err := s.fit(node.Parent, &c); err != nil {
		return err
	}
	old := node.Config
	more := int64(c.Weight - old.Weight)
	for e := range node.Lanes {
		s.period(node.Parent, e)
		s.fall(node.Parent, e)
		l, up := &node.Lanes[e], &s.Nodes[node.Parent].Lanes[e]
		switch {
		case l.Able > 0:
			up.Live += more
		case l.Idle == up.Period:
			up.Left += more
		}
		l.Tag = up.Level + over(s.debt(n, e), int64(c.Weight)) // the debt is a time, independent of the weight
	}
	node.Config = c
	if c.Cap != old.Cap {
		for e := range node.Lanes {
			node.Lanes[e].RestEnd, node.Lanes[e].Tokens, node.Lanes[e].Filled = 0, s.fullCap(n), s.Now
			s.period(node.Parent, e)
			s.policy.arrive(n, e) // time that it could not use while it rested is not saved
		}
	}
	return nil
}
