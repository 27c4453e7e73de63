package channels

import "github.com/umbra-gpu/umbra/aggregator/card"

// Channels leave the card. The methods in this file belong to the worker, which calls them without
// the guest's lock. A wait for the card is bounded, and a round does not wait again after one that
// took too long, where it can do without: others wait for its end.

// exits is the state of channels on their way out. It belongs to the worker.
type exits struct {
	timedOut bool       // a wait for the card took too long in this round
	stuck    []*Channel // that do not leave the card
	waiting  []*Channel // closed, for an invalidate
}

// Begin begins a round.
func (c *Channels) Begin() { c.exits.timedOut = false }

// Left is how many channels that are in the table no more the card has not given back. The caller
// holds the guest's lock.
func (c *Channels) Left() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.live { // a panic may have kept one from exits
		if !c.Is(ch) {
			n++
		}
	}
	return n
}

func (c *Channels) inTime(ok bool) bool {
	if !ok {
		c.stats.CardTimeout.Add(1)
		c.exits.timedOut = true
	}
	return ok
}

// Close ends a channel of the card and frees its resources when it has left the card. If it
// does not leave, the channel is stuck and the guest quarantined.
func (c *Channels) Close(ch *Channel) {
	ch.Disable()
	if !c.leave(ch) {
		c.exits.stuck = append(c.exits.stuck, ch)
		c.cfg.Gate.GiveUp(ch)
		c.guest.Quarantine("a channel does not leave the card")
		return
	}
	c.finish(ch)
}

// leave waits until a disabled channel is on no PBDMA.
func (c *Channels) leave(ch *Channel) bool {
	if c.exits.timedOut || c.guest.Quarantined() && ch.card.Running() { // waited for already
		left, _ := ch.card.Stop(false)
		return left
	}
	left, inTime := ch.card.Stop(true)
	c.inTime(inTime)
	return left
}

// finish frees the resources of a channel that is on no PBDMA. What the card reported of it is
// delivered to its guest first: a later owner of the same structures and number must not get
// it.
func (c *Channels) finish(ch *Channel) {
	c.cfg.GPU.Poll()
	state := ch.card.State()
	if !ch.state.Saved {
		ch.save()
	}
	c.cfg.Gate.Remove(ch)
	c.count(ch)
	ch.card.Unbind()
	c.Saved[ch.ID] = SavedState{Number: ch.card.ID(), Token: state.Token}
	if !c.cfg.Shadows.Leave(ch.space) {
		c.release(ch)
		return
	}
	c.exits.waiting = append(c.exits.waiting, ch)
	c.Invalidate() // else a later one releases it
}

// release frees the memory and the number of a closed channel that the card does not use.
func (c *Channels) release(ch *Channel) {
	ch.card.Free()
	c.setLive(ch, false)
	c.stats.Unbinds.Add(1)
}

// Invalidate makes the card drop old translations, and then frees everything that went out of
// use.
func (c *Channels) Invalidate() bool {
	if c.exits.timedOut {
		return false
	}
	if !c.inTime(c.cfg.Shadows.InvalidateCard()) {
		return false
	}
	for _, ch := range c.exits.waiting {
		c.release(ch)
	}
	c.exits.waiting = nil
	return true
}

// Stale reports whether something waits for an invalidate of the card.
func (c *Channels) Stale() bool { return c.cfg.Shadows.Stale() || len(c.exits.waiting) > 0 }

// Reap checks the stuck channels again.
func (c *Channels) Reap() {
	left := c.exits.stuck[:0]
	for _, ch := range c.exits.stuck {
		if ch.card.Running() {
			left = append(left, ch)
			continue
		}
		c.finish(ch)
	}
	c.exits.stuck = left
	if len(c.exits.waiting) > 0 {
		c.Invalidate()
	}
}

// Commit lets the card run new channels.
func (c *Channels) Commit() {
	c.inTime(c.cfg.Share.Commit())
}

// TakeOff preempts channels and saves their state into guest memory. They may come back. A channel
// that does not leave although it must quarantines the guest.
func (c *Channels) TakeOff(list []*Channel) {
	if len(list) == 0 {
		return
	}
	cards := make([]card.Channel, len(list))
	for i, ch := range list {
		cards[i] = ch.card
	}
	c.inTime(c.cfg.GPU.Preempt(cards...))
	for _, ch := range list {
		if !c.mayRun(ch) && ch.card.Running() && !c.mayRun(ch) { // the guest may enable it meanwhile
			c.guest.Quarantine("a channel does not leave the card")
			continue
		}
		ch.save()
		c.locked(func() { ch.state.Saved = !c.mayRunLocked(ch) })
	}
}

func (c *Channels) mayRun(ch *Channel) (may bool) {
	c.locked(func() { may = c.mayRunLocked(ch) })
	return may
}

// mayRunLocked reports whether a channel may be on the card: also one that the worker has yet to stop.
func (c *Channels) mayRunLocked(ch *Channel) bool {
	return (c.May.Has(ch.ID) || c.Behind) && !ch.state.Stopped
}

func (c *Channels) locked(f func()) {
	c.cfg.Lock.Lock()
	defer c.cfg.Lock.Unlock()
	f()
}
