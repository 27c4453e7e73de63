package aggregator

import "github.com/umbra-gpu/umbra/aggregator/card"

// work is the guest's worker goroutine. Each round executes the pending requests in the order
// of their dependencies.
func (g *Guest) work() {
	defer g.working.Done()
	for g.next() {
		g.round(&g.current) // stable until finish
		g.finish()
	}
	g.cardTimedOut = false
	for _, ch := range g.takeAll() {
		g.close(ch)
	}
	g.reap()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.wake.Broadcast()
	g.eventsReady.Broadcast()
}

func (g *Guest) round(t *requests) {
	g.cardTimedOut = false
	g.tableWork.Left = 2 * g.limits.Tables
	for _, sp := range g.spaces {
		sp.fresh = false
	}
	if !t.flush.empty() {
		t.flush.each(g.rereadPut)
		g.flushAliases()
	}
	g.refreshShadows(t)
	if t.schedule {
		g.reschedule()
	}
	opened := false
	t.bind.each(func(id uint8) { opened = g.rebind(id) || opened })
	if t.reset {
		g.mu.Lock()
		g.listed = channelSet{}
		g.mu.Unlock()
		g.reap()
	}
	if g.stale && !t.bind.empty() {
		g.invalidateCard()
	}
	if opened {
		g.inlineCredits = maxInlineCredits
		if !g.share.Commit() {
			g.noteCardTimeout()
		}
	}
	if t.runlist {
		g.commit(t.base, t.count)
	}
	g.preempt(t.preempt)
}

// takeAll empties the channel table.
func (g *Guest) takeAll() (left []*boundChannel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.channels {
		if ch := g.channels[i].ch; ch != nil {
			left = append(left, ch)
		}
		g.channels[i] = guestChannel{}
	}
	return left
}

// next waits for requests and makes them current. It returns false when the guest is removed.
func (g *Guest) next() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.pending.empty() && !g.closing || !g.current.empty() { // a trap is on the fast path
		g.wake.Wait()
	}
	g.throttle()
	if g.closing {
		return false
	}
	starts := g.starts(&g.pending)
	if g.ending = !starts && g.pending.bindsOnly(); g.mustFlush(&g.pending) {
		g.flushDeferred()
	}
	g.current, g.pending = g.pending, requests{}
	g.binding = g.current.bind
	g.current.doorbells.each(func(id uint8) {
		if ch := g.channels[id].ch; ch != nil {
			ch.roundPut = ch.lastPut
		}
	})
	g.begun++
	return true
}

// starts reports whether the requests may let a channel run. Guest.mu is held.
func (g *Guest) starts(t *requests) bool {
	if !t.doorbells.empty() || t.runlist || t.schedule {
		return true
	}
	binds := false
	t.bind.each(func(id uint8) { binds = binds || g.channels[id].bound })
	return binds
}

// mustFlush reports whether the requests may let a channel run that needs deferred
// invalidates flushed. A doorbell lets only its own channel run. Guest.mu is held.
func (g *Guest) mustFlush(t *requests) (must bool) {
	rest := *t
	rest.doorbells = channelSet{}
	if g.starts(&rest) {
		return true
	}
	t.doorbells.each(func(id uint8) {
		ch := g.channels[id].ch
		must = must || ch == nil || g.needsFlush(ch)
	})
	return must
}

// finish ends a round: it submits the doorbells that waited for it, and registers that poll
// for the round read complete.
func (g *Guest) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current.reset {
		g.savedStates = [len(g.savedStates)]savedState{}
		g.leaveQuarantine()
	}
	doorbells := g.current.doorbells
	g.events.done = g.events.done || !g.current.doorbellsOnly()
	g.events.runlist = g.events.runlist || g.current.runlist
	g.current = requests{}
	g.ending = false
	g.done = g.begun
	doorbells.each(func(id uint8) {
		if ch := g.channels[id].ch; ch != nil && !g.rebinding(id) {
			g.submit(ch, ch.roundPut)
		}
	})
	g.wake.Broadcast()
	if !g.events.empty() {
		g.eventsReady.Signal()
	}
}

// rebind makes the card's channel match the guest's table, and reports whether it opened one.
// When it returns, the guest's requests go to that channel, even within this round. A bind that
// arrived after the round began is left to the next round.
func (g *Guest) rebind(id uint8) (opened bool) {
	g.mu.Lock()
	c := &g.channels[id]
	old, want, inst := c.ch, c.bound && g.quarantineReason == "" && !g.pending.bind.has(id), c.inst
	c.ch, g.leaving = nil, c.ch
	g.mu.Unlock()
	if old != nil {
		g.close(old)
	}
	var ch *boundChannel
	if want {
		ch = g.open(id, inst)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.binding.remove(id)
	g.leaving = nil
	if ch == nil {
		g.events.unbound = g.events.unbound || want // delivered at the end of the round
		return false
	}
	c.ch = ch
	if g.quarantineReason != "" {
		g.pending.bind.add(id)
		return true
	}
	if c.enabled {
		g.run(ch)
	}
	if g.agg.gate != nil { // work submitted before the bind
		g.submit(ch, ch.lastPut)
	}
	return true
}

// refreshShadows updates the shadows that the round requires and makes the card invalidate.
// It precedes everything that lets channels run.
func (g *Guest) refreshShadows(t *requests) {
	if t.policy != nil {
		g.follow(*t.policy)
	}
	v := &t.invalidate
	due := v.any() && !g.deferAll(t)
	switch {
	case t.entries:
		g.update(&invalidations{}) // covers all spaces
	case due:
		g.update(v)
	}
	if !due {
		return // eagerly applied entries wait for their invalidate
	}
	if g.stale || len(g.waiting)+len(g.retiredSpaces) > 0 {
		g.invalidateCard()
	}
}

// deferAll defers the invalidates of a round that lets no channel run.
func (g *Guest) deferAll(t *requests) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.starts(t) && g.deferInvalidate(&t.invalidate)
}

// commit takes over the guest's runlist: channels that are no longer on it leave the card.
func (g *Guest) commit(base, count uint32) {
	if left := g.setListed(g.readRunlist(base, count)); len(left) > 0 {
		g.takeOff(left)
	}
}

// setListed makes now the guest's runlist. Channels that join it may run. It disables those
// that leave it, and returns them.
func (g *Guest) setListed(now channelSet) (left []*boundChannel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.listed
	g.listed = now
	for id := range g.channels {
		c, id := &g.channels[id], uint8(id)
		switch {
		case c.ch == nil:
		case was.has(id) && !now.has(id):
			c.ch.hw.Disable()
			left = append(left, c.ch)
		case now.has(id) && !was.has(id) && c.enabled && !g.rebinding(id):
			g.run(c.ch)
		}
	}
	return left
}

// preempt takes channels off the card. They may come back.
func (g *Guest) preempt(ids channelSet) {
	var asked []*boundChannel
	g.mu.Lock()
	ids.each(func(id uint8) {
		if ch := g.channels[id].ch; ch != nil {
			asked = append(asked, ch)
		}
	})
	g.mu.Unlock()
	if len(asked) > 0 {
		g.takeOff(asked)
	}
}

// takeOff preempts channels and saves their state.
func (g *Guest) takeOff(list []*boundChannel) {
	g.inlineCredits = maxInlineCredits
	hw := make([]card.Channel, len(list))
	for i, ch := range list {
		hw[i] = ch.hw
	}
	if !g.agg.gpu.Preempt(hw...) {
		g.noteCardTimeout()
	}
	g.removedFromCard(list)
}

// noteCardTimeout counts a wait for the card that timed out. The round does not wait again
// where it can do without: others wait for its end.
func (g *Guest) noteCardTimeout() {
	g.stats.CardTimeout.Add(1)
	g.cardTimedOut = true
}

// removedFromCard saves the state of channels that have left the card into guest memory. A
// channel that did not leave although it must quarantines the guest.
func (g *Guest) removedFromCard(list []*boundChannel) {
	for _, ch := range list {
		g.mu.Lock()
		may := g.mayRun(ch)
		g.mu.Unlock()
		if !may && ch.hw.Running() {
			g.Quarantine("a channel does not leave the card")
			continue
		}
		g.saveBack(ch)
		g.mu.Lock()
		ch.saved = !may
		g.mu.Unlock()
	}
}

// mayRun reports whether a channel is listed, enabled and not stopped. Guest.mu is held.
func (g *Guest) mayRun(ch *boundChannel) bool {
	return g.listed.has(ch.gid) && g.channels[ch.gid].enabled && !ch.stopped
}
