package aggregator

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
	relist := false
	t.bind.each(func(id uint8) { relist = g.rebind(id) || relist })
	if t.reset {
		g.listed = channelSet{}
		g.reap()
	}
	if g.stale && !t.bind.empty() {
		g.makeCertain()
	}
	switch {
	case t.runlist:
		g.commit(t.base, t.count)
	case relist:
		g.commitListed()
	}
	g.preempt(t.preempt)
}

// takeAll empties the channel table.
func (g *Guest) takeAll() (left []*channel) {
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
		g.saved = [len(g.saved)]savedState{}
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

// rebind makes the card's channel match the guest's table. It reports whether the card must
// list the new channel. When it returns, the guest's requests go to that channel, even
// within this round. A bind that arrived after the round began is left to the next round.
func (g *Guest) rebind(id uint8) (relist bool) {
	g.mu.Lock()
	c := &g.channels[id]
	old, want, inst := c.ch, c.bound && g.quarantineReason == "" && !g.pending.bind.has(id), c.inst
	c.ch, g.leaving = nil, c.ch
	g.mu.Unlock()
	if old != nil {
		g.close(old)
	}
	var ch *channel
	if want {
		ch = g.open(id, inst)
	}
	if ch != nil {
		relist = g.listed.has(id)
		g.agg.mu.Lock()
		ch.listed = relist
		g.agg.mu.Unlock()
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
		return relist
	}
	if c.enabled {
		g.run(ch)
	}
	if g.agg.gate != nil { // work submitted before the bind
		g.submit(ch, ch.lastPut)
	}
	return relist
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
	if v.unmapped || g.stale || len(g.waiting)+len(g.retiredSpaces) > 0 {
		g.makeCertain()
	}
}

// deferAll defers the invalidates of a round that lets no channel run.
func (g *Guest) deferAll(t *requests) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.starts(t) && g.deferInvalidate(&t.invalidate)
}

// makeCertain makes the card invalidate, and records whether it did.
func (g *Guest) makeCertain() {
	ok := g.invalidateCard()
	g.mu.Lock()
	g.uncertain = !ok
	g.mu.Unlock()
}

// commit merges the guest's runlist into the card's.
func (g *Guest) commit(base, count uint32) {
	g.listed = g.readRunlist(base, count)
	g.commitListed()
}

// commitListed gives the card its runlist with this guest's channels as they are now, and
// saves the state of those that left.
func (g *Guest) commitListed() {
	g.inlineCredits = maxInlineCredits
	left, ok := g.list(g.agg.ctl.commitRunlist)
	if !ok {
		g.noteCardTimeout()
	}
	g.removedFromCard(left)
}

// list commits the card's runlist with this guest's channels as they are now, and returns
// those that leave it.
func (g *Guest) list(commit func(func() []uint8) bool) (left []*channel, ok bool) {
	ours := g.bound()
	g.mu.Lock()
	for _, ch := range ours {
		ch.active, ch.mayHaveRun = true, true // it may have had a doorbell while it was not listed
		ch.saved = ch.saved && !g.mayRun(ch)
	}
	g.mu.Unlock()
	a := g.agg
	a.mu.Lock()
	for _, ch := range ours {
		on := g.listed.has(ch.gid)
		if ch.listed && !on {
			left = append(left, ch)
		}
		ch.listed = on
	}
	a.mu.Unlock()
	return left, commit(a.listed)
}

func (g *Guest) bound() (list []*channel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.channels {
		if ch := g.channels[i].ch; ch != nil {
			list = append(list, ch)
		}
	}
	return list
}

func (g *Guest) preempt(ids channelSet) {
	var asked []*channel
	var numbers []uint8
	for _, ch := range g.bound() {
		if ids.has(ch.gid) {
			asked = append(asked, ch)
			numbers = append(numbers, ch.id)
		}
	}
	if len(asked) == 0 {
		return
	}
	g.inlineCredits = maxInlineCredits
	if !g.agg.ctl.preempt(numbers...) {
		g.noteCardTimeout()
	}
	g.removedFromCard(asked)
}

// noteCardTimeout counts a wait for the card that timed out. The round does not wait again
// where it can do without: others wait for its end.
func (g *Guest) noteCardTimeout() {
	g.stats.CardTimeout.Add(1)
	g.cardTimedOut = true
}

// removedFromCard saves the state of channels that have left the card into guest memory. A
// channel that did not leave although it must quarantines the guest.
func (g *Guest) removedFromCard(list []*channel) {
	for _, ch := range list {
		g.mu.Lock()
		may := g.mayRun(ch)
		g.mu.Unlock()
		if !may && g.agg.ctl.running(ch.id) {
			g.quarantine("a channel does not leave the card")
			continue
		}
		g.saveBack(ch)
		g.mu.Lock()
		ch.saved = !may
		g.mu.Unlock()
	}
}

// mayRun reports whether a channel is listed, enabled and not stopped. Guest.mu is held.
func (g *Guest) mayRun(ch *channel) bool {
	return g.listed.has(ch.gid) && g.channels[ch.gid].enabled && !ch.stopped
}
