package aggregator

// work is the guest's goroutine: it does what is noted in todo, a round at a
// time, in the order in which one thing depends on another.
func (g *Guest) work() {
	defer g.working.Done()
	for g.next() {
		g.round(&g.current) // stable until finish: who has filled doing owns it, here or in a trap (atonce.go)
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
	if !t.gather.empty() {
		t.gather.each(g.rereadPut)
		g.gather()
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

// next waits for something to do and moves it to doing. It returns false when
// the guest is removed.
func (g *Guest) next() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.pending.empty() && !g.closing || !g.current.empty() { // a trap's; see atonce.go
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

// starts reports whether channels may run because of it that did not before. Guest.mu is held.
func (g *Guest) starts(t *requests) bool {
	if !t.doorbells.empty() || t.runlist || t.schedule {
		return true
	}
	binds := false
	t.bind.each(func(id uint8) { binds = binds || g.channels[id].bound })
	return binds
}

// hasToPay reports whether something lets channels run for which something is owed. A bell
// that has only to be gathered for lets its own channel run, and no other. Guest.mu is held.
func (g *Guest) mustFlush(t *requests) (pays bool) {
	rest := *t
	rest.doorbells = channelSet{}
	if g.starts(&rest) {
		return true
	}
	t.doorbells.each(func(id uint8) {
		ch := g.channels[id].ch
		pays = pays || ch == nil || g.needsFlush(ch)
	})
	return pays
}

// finish ends a round: bells that waited for it are rung, and the guest may see
// that it is done.
func (g *Guest) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current.reset {
		g.kept = [len(g.kept)]kept{}
		g.leaveQuarantine()
	}
	bells := g.current.doorbells
	g.events.done = g.events.done || !g.current.doorbellsOnly()
	g.events.runlist = g.events.runlist || g.current.runlist
	g.current = requests{}
	g.ending = false
	g.done = g.begun
	bells.each(func(id uint8) {
		if ch := g.channels[id].ch; ch != nil && !g.rebinding(id) {
			g.submit(ch, ch.roundPut)
		}
	})
	g.wake.Broadcast()
	if !g.events.empty() {
		g.eventsReady.Signal()
	}
}

// rebind makes the card's channel what the guest's table says. It reports
// whether the new channel is one that the card has to list. From its end on the
// guest's requests go to that channel, also while the round goes on: nobody looks
// again whether they came. One that was bound since the round began is the next one's: what
// it depends on is not done.
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
		g.events.unbound = g.events.unbound || want // told with the end of the round
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
	if g.agg.gate != nil { // what was submitted before it was bound
		g.submit(ch, ch.lastPut)
	}
	return relist
}

// refreshShadows brings shadows up to date as far as the round asks for it, and
// makes the card forget what they were. It comes before everything that lets
// channels run.
func (g *Guest) refreshShadows(t *requests) {
	if t.policy != nil {
		g.follow(*t.policy)
	}
	v := &t.invalidate
	due := v.any() && !g.deferAll(t)
	switch {
	case t.entries:
		g.update(&invalidations{}) // whatever is invalidated besides
	case due:
		g.update(v)
	}
	if !due {
		return // entries that were applied early wait for their invalidate
	}
	if v.unmapped || g.stale || len(g.waiting)+len(g.retiredSpaces) > 0 {
		g.makeCertain()
	}
}

// putOffAll puts off the invalidates of a round that lets nothing run: those that
// came while another round was under way.
func (g *Guest) deferAll(t *requests) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.starts(t) && g.deferInvalidate(&t.invalidate)
}

// makeCertain has the card forget what shadows were.
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

// commitListed gives the card its runlist with this guest's as it is now.
// Channels that left it are shown to the guest as the card left them.
func (g *Guest) commitListed() {
	g.inlineCredits = maxInlineCredits
	left, ok := g.list(g.agg.ctl.commitRunlist)
	if !ok {
		g.noteCardTimeout()
	}
	g.removedFromCard(left)
}

// list has the card's runlist committed with this guest's as it is now, and returns the
// channels that leave it.
func (g *Guest) list(commit func(func() []uint8) bool) (left []*channel, ok bool) {
	ours := g.bound()
	g.mu.Lock()
	for _, ch := range ours {
		ch.active, ch.mayHaveRun = true, true // it may have been told to fetch while it was not listed
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

// tire counts a wait for the card that was in vain. A round does not wait again
// for what it can do without: who waits for the round must not wait for ever.
func (g *Guest) noteCardTimeout() {
	g.stats.CardTimeout.Add(1)
	g.cardTimedOut = true
}

// takenOff shows the guest channels that have left the card. One that has not,
// although it must, puts the guest into safe mode.
func (g *Guest) removedFromCard(list []*channel) {
	for _, ch := range list {
		g.mu.Lock()
		may := g.mayRun(ch)
		g.mu.Unlock()
		if !may && g.agg.ctl.running(ch.id) {
			g.quarantine("the card does not give a channel back")
			continue
		}
		g.saveBack(ch)
		g.mu.Lock()
		ch.saved = !may
		g.mu.Unlock()
	}
}

// may reports whether a channel may run as it is listed now. Guest.mu is held.
func (g *Guest) mayRun(ch *channel) bool {
	return g.listed.has(ch.gid) && g.channels[ch.gid].enabled && !ch.stopped
}
