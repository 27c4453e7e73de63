package aggregator

// The fast path runs in the trap and takes an idle channel off the card: it executes a
// preempt, or a runlist that only removes channels. A driver that ends a channel does both
// and polls for each. The card completes them immediately, but waking the worker takes
// longer than a driver polls before it sleeps.
//
// The trap fills Guest.current, and the worker waits until it is empty. Until then the trap
// owns the worker's state. The fast path never waits for the card: the worker does a
// request that would wait.
//
// Requests in Guest.pending coalesce; requests run inline do not. So each round in which
// the worker itself asks the card grants only a few inline requests.

const (
	maxInlineDelist = 4 // channels that one inline runlist may remove
	// maxInlineCredits is how many inline requests a round grants. A driver that ends a
	// channel preempts it once for each engine, and commits, before the round that unbinds it.
	maxInlineCredits = 4
)

// idle reports whether no request is pending or current. Guest.mu is held.
func (g *Guest) idle() bool { return g.pending.empty() && g.current.empty() }

// mayRunInline reports whether a trap may act in the worker's place. Guest.mu is held.
func (g *Guest) mayRunInline() bool {
	return g.idle() && !g.closing && g.quarantineReason == "" && g.inlineCredits > 0
}

// runInline executes what is in current without Guest.mu, then empties current.
func (g *Guest) runInline(do func()) {
	g.mu.Unlock()
	do()
	g.mu.Lock()
	g.current = requests{}
	g.wake.Broadcast()
}

// tryPreempt preempts a channel if the card does so immediately, as for a channel that is
// on no PBDMA. A channel whose state is saved already is not urgent. Guest.mu is held.
func (g *Guest) tryPreempt(id uint8) (ok bool) {
	ch := g.channels[id].ch
	if !g.mayRunInline() || ch == nil || ch.saved {
		return false
	}
	g.current.preempt.add(id)
	g.runInline(func() {
		g.inlineCredits--
		if ok = g.agg.gpu.TryPreempt(ch.hw); ok {
			g.removedFromCard([]*boundChannel{ch})
		}
	})
	return ok
}

// tryDelist commits a runlist that only removes channels: no work can start that would
// see a deferred invalidate. It reports whether they have left the card. Guest.mu is held.
func (g *Guest) tryDelist(base, count uint32) (ok bool) {
	if !g.mayRunInline() {
		return false
	}
	g.current.runlist = true
	g.runInline(func() { ok = g.delist(base, count) })
	if ok {
		g.events.done, g.events.runlist = true, true
		g.eventsReady.Signal()
	}
	return ok
}

func (g *Guest) delist(base, count uint32) bool {
	now, ok := g.lookAtRunlist(base, count)
	g.mu.Lock()
	leave := g.listed.without(now)
	ok = ok && now.without(g.listed) == 0 && leave > 0 && leave <= maxInlineDelist
	g.mu.Unlock()
	if !ok {
		return false
	}
	g.inlineCredits--
	left := g.setListed(now)
	for _, ch := range left {
		if !g.agg.gpu.TryPreempt(ch.hw) {
			g.mu.Lock()
			g.pending.preempt.addAll(left) // and the worker saves their state
			g.mu.Unlock()
			return false
		}
	}
	g.removedFromCard(left)
	return true
}
