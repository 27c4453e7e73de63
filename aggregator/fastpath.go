package aggregator

// What takes a channel off the card that has nothing more to do: a preempt, or a runlist
// that takes channels off. A driver that ends a channel does both, and waits for each. The card
// is done at once, and the guest's goroutine takes some microseconds, but to wake it takes
// longer than a driver looks before it sleeps. So the trap does it, in the goroutine's
// place: it is in doing, and the goroutine waits until it is not. While it is there, what
// belongs to the goroutine belongs to the trap. Nothing here waits for the card; what would
// have to is left to the goroutine, which begins anew.
//
// Requests that are noted in todo become one; those that are done here do not. So only what
// takes something off the card is done here, and no more than some times for each round in
// which the goroutine itself asks the card. It waits for the card then, and a guest that asks
// on and on has what it asks meanwhile become one.

const (
	maxInlineDelist = 4 // channels that one trap may take off the card
	// spareTraps is how many traps may ask the card for one round that did: a driver that
	// ends a channel preempts it for each engine, and commits, before the round that unbinds it.
	maxInlineCredits = 4
)

// idle reports whether nothing is to be done, or under way. Guest.mu is held.
func (g *Guest) idle() bool { return g.pending.empty() && g.current.empty() }

// mayAtOnce reports whether a trap may ask the card in the goroutine's place. Guest.mu is held.
func (g *Guest) mayRunInline() bool {
	return g.idle() && !g.closing && g.quarantineReason == "" && g.inlineCredits > 0
}

// inPlace does what is in doing with Guest.mu let go of, and takes it out again.
func (g *Guest) runInline(do func()) {
	g.mu.Unlock()
	do()
	g.mu.Lock()
	g.current = requests{}
	g.wake.Broadcast()
}

// leaves has a preempt done that the card does at once, as for a channel that is on no
// PBDMA: the guest sees what the card left of it. One that was taken off, and has not run
// since, is nothing to hurry for. Guest.mu is held.
func (g *Guest) tryPreempt(id uint8) (ok bool) {
	ch := g.channels[id].ch
	if !g.mayRunInline() || ch == nil || ch.saved {
		return false
	}
	g.current.preempt.add(id)
	g.runInline(func() {
		g.inlineCredits--
		if ok = g.agg.ctl.tryPreempt(ch.id); ok {
			g.removedFromCard([]*channel{ch})
		}
	})
	return ok
}

// unlist has a runlist committed that lists less than is listed: nothing may run by it that
// could see what is owed. It reports whether the card has taken it. Guest.mu is held.
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
	leave := g.listed.without(now)
	if !ok || now.without(g.listed) > 0 || leave == 0 || leave > maxInlineDelist {
		return false
	}
	g.inlineCredits--
	was := g.listed
	g.listed = now
	left, ok := g.list(g.agg.ctl.tryRunlist)
	if ok {
		g.removedFromCard(left)
		return true
	}
	// As if it had not been tried: it is the goroutine's to commit, and to see who leaves.
	g.listed = was
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	for _, ch := range left {
		ch.listed = true
	}
	return false
}
