package aggregator

import "github.com/umbra-gpu/umbra/aggregator/fifo"

// The fast path runs in the trap and takes an idle channel off the card: it executes a
// preempt, or a runlist that only removes channels. A driver that ends a channel does both
// and polls for each. The card completes them immediately, but waking the worker takes
// longer than a driver polls before it sleeps: 16 contexts end in 15 ms, without it in 45
// (umbra bench run --machines --only contexts).
//
// The trap fills work.current; until it empties it again it owns the worker's state. The fast
// path never waits for the card: the worker does a request that would wait.
//
// Requests in work.pending coalesce; requests run inline do not. So each round in which
// the worker itself asks the card grants only a few inline requests.

const (
	maxInlineDelist = 4 // channels that one inline runlist may remove
	// maxCredits is how many inline requests a round grants. A driver that ends a
	// channel preempts it once for each engine, and commits, before the round that unbinds it.
	maxCredits = 4
)

// mayInline reports whether a trap may act in the worker's place. Guest.mu is held.
func (g *Guest) mayInline() bool {
	return g.idle() && !g.work.closing && g.state.Quarantined == "" && g.state.Credits > 0
}

// endInline empties current.
func (g *Guest) endInline() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work.current = Requests{}
	g.wake.Broadcast()
}

// tryPreempt preempts a channel if the card does so immediately, as for a channel that is
// on no PBDMA. A channel whose state is saved already is not urgent.
func (g *Guest) tryPreempt(id uint8) bool {
	g.mu.Lock()
	ch := g.channels.Channel(id)
	ok := g.mayInline() && ch != nil && !ch.Saved()
	if ok {
		g.work.current.Preempt.Add(id)
		g.state.Credits--
	}
	g.mu.Unlock()
	if !ok {
		return false
	}
	defer g.endInline()
	return g.channels.TryTakeOff([]*fifo.Channel{ch})
}

// tryDelist commits a runlist that only removes channels: no work can start that would
// see a deferred invalidate. It reports whether they have left the card.
func (g *Guest) tryDelist(base, count uint32) bool {
	g.mu.Lock()
	if !g.mayInline() {
		g.mu.Unlock()
		return false
	}
	g.work.current.Runlist = true
	g.mu.Unlock()
	defer g.endInline()
	now, ok := g.channels.ReadRunlist(base, count)
	if !ok {
		return false
	}
	left := g.delist(now)
	if len(left) == 0 {
		return false
	}
	if g.channels.TryTakeOff(left) {
		g.reports.Done(true)
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Preempt.AddAll(left) // and the worker saves their state
	return false
}

// delist makes now the runlist if that only removes a few channels, and returns those.
func (g *Guest) delist(now fifo.Set) []*fifo.Channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	leave := g.channels.Listed.Without(now)
	if now.Without(g.channels.Listed) > 0 || leave == 0 || leave > maxInlineDelist {
		return nil
	}
	g.state.Credits--
	return g.setListed(now)
}
