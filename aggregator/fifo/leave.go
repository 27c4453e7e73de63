package fifo

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
func (f *FIFO) Begin() { f.exits.timedOut = false }

// Left is how many channels that are in the table no more the card has not given back. The caller
// holds the guest's lock.
func (f *FIFO) Left() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.live { // a panic may have kept one from exits
		if !f.Is(ch) {
			n++
		}
	}
	return n
}

func (f *FIFO) inTime(ok bool) bool {
	if !ok {
		f.stats.CardTimeout.Add(1)
		f.exits.timedOut = true
	}
	return ok
}

// Close ends a channel of the card and frees its resources when it has left the card. If it
// does not leave, the channel is stuck and the guest quarantined.
func (f *FIFO) Close(ch *Channel) {
	ch.Disable()
	if !f.leave(ch) {
		f.exits.stuck = append(f.exits.stuck, ch)
		f.cfg.Gate.GiveUp(ch)
		f.guest.Quarantine("a channel does not leave the card")
		return
	}
	f.finish(ch)
}

// leave waits until a disabled channel is on no PBDMA.
func (f *FIFO) leave(ch *Channel) bool {
	if f.exits.timedOut || f.guest.Quarantined() && ch.card.Running() { // waited for already
		left, _ := ch.card.Stop(false)
		return left
	}
	left, inTime := ch.card.Stop(true)
	f.inTime(inTime)
	return left
}

// finish frees the resources of a channel that is on no PBDMA. What the card reported of it is
// delivered to its guest first: a later owner of the same instance block and number must not get
// it.
func (f *FIFO) finish(ch *Channel) {
	f.cfg.GPU.Poll()
	state := ch.card.State()
	if !ch.state.Saved {
		ch.saveBack(state)
	}
	f.cfg.Gate.Remove(ch)
	ch.card.Unbind()
	f.Saved[ch.ID] = SavedState{Number: ch.card.ID(), Token: state.Token}
	if f.cfg.Shadows.Leave(ch.space) && !f.Invalidate() {
		f.exits.waiting = append(f.exits.waiting, ch) // until an invalidate completes
		return
	}
	f.release(ch)
}

// release frees the memory and the number of a closed channel that the card does not use.
func (f *FIFO) release(ch *Channel) {
	ch.card.Free()
	f.setLive(ch, false)
	f.stats.Unbinds.Add(1)
}

// Invalidate makes the card drop old translations, and then frees everything that went out of
// use.
func (f *FIFO) Invalidate() bool {
	if f.exits.timedOut || !f.inTime(f.cfg.Shadows.InvalidateCard()) {
		return false
	}
	for _, ch := range f.exits.waiting {
		f.release(ch)
	}
	f.exits.waiting = nil
	return true
}

// Stale reports whether something waits for an invalidate of the card.
func (f *FIFO) Stale() bool { return f.cfg.Shadows.Stale() || len(f.exits.waiting) > 0 }

// Reap checks the stuck channels again.
func (f *FIFO) Reap() {
	left := f.exits.stuck[:0]
	for _, ch := range f.exits.stuck {
		if ch.card.Running() {
			left = append(left, ch)
			continue
		}
		f.finish(ch)
	}
	f.exits.stuck = left
	if len(f.exits.waiting) > 0 {
		f.Invalidate()
	}
}

// Commit lets the card run new channels.
func (f *FIFO) Commit() {
	f.inTime(f.cfg.Share.Commit())
}

// TakeOff preempts channels and saves their state into guest memory. They may come back. A channel
// that does not leave although it must quarantines the guest.
func (f *FIFO) TakeOff(list []*Channel) {
	if len(list) == 0 {
		return
	}
	cards := make([]card.Channel, len(list))
	for i, ch := range list {
		cards[i] = ch.card
	}
	f.inTime(f.cfg.GPU.Preempt(cards...))
	for _, ch := range list {
		if !f.mayRun(ch) && ch.card.Running() && !f.mayRun(ch) { // the guest may enable it meanwhile
			f.guest.Quarantine("a channel does not leave the card")
			continue
		}
		ch.saveBack(ch.card.State())
		f.cfg.Lock.Lock()
		ch.state.Saved = !f.mayRunLocked(ch)
		f.cfg.Lock.Unlock()
	}
}

func (f *FIFO) mayRun(ch *Channel) bool {
	f.cfg.Lock.Lock()
	defer f.cfg.Lock.Unlock()
	return f.mayRunLocked(ch)
}

func (f *FIFO) mayRunLocked(ch *Channel) bool {
	return f.Listed.Has(ch.ID) && f.Table[ch.ID].Enabled && !ch.state.Stopped
}
