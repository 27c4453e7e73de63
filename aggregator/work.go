package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// run is the guest's worker goroutine. Each round executes the pending requests in the order
// of their dependencies.
func (g *Guest) run() {
	for g.next() {
		g.round(&g.work.current) // stable until finish
		g.finish()
	}
	g.channels.Begin()
	g.mu.Lock()
	left := g.channels.TakeAll()
	g.mu.Unlock()
	for _, ch := range left {
		g.channels.Close(ch)
	}
	g.channels.Reap()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work.ended = true
	g.wake.Broadcast()
}

func (g *Guest) round(t *requests) {
	g.channels.Begin()
	g.shadows.Begin()
	if !t.flush.Empty() {
		t.flush.Each(g.channels.Reread)
		g.MemoryBarrier()
	}
	g.refreshShadows(t)
	if t.schedule {
		g.reschedule()
	}
	opened := false
	t.bind.Each(func(id uint8) { opened = g.rebind(id) || opened })
	if t.reset {
		g.mu.Lock()
		g.channels.Listed = fifo.Set{}
		g.mu.Unlock()
		g.channels.Reap()
	}
	if g.shadows.Stale() && !t.bind.Empty() {
		g.channels.Invalidate()
	}
	if opened {
		g.channels.Commit()
	}
	if t.runlist {
		g.commit(t.base, t.count)
	}
	if !t.preempt.Empty() {
		g.mu.Lock()
		asked := g.channels.Each(t.preempt)
		g.mu.Unlock()
		g.channels.TakeOff(asked)
	}
}

// await waits until the worker has completed all pending requests, or has ended. Each of its
// waits for the card is bounded, and a round does not wait again after one that timed out.
// Guest.mu is held.
func (g *Guest) await() {
	w := &g.work
	for round := w.begun + 1; w.done < round && !w.ended; {
		g.wake.Broadcast()
		g.wake.Wait()
	}
}

// throttle waits while the guest's table work exceeds its rate, unless a reset arrives.
// Guest.mu is held.
func (g *Guest) throttle() {
	for !g.work.closing && !g.work.pending.reset {
		now := time.Now()
		d := g.shadows.Throttled(now)
		if d == 0 {
			return
		}
		t := time.AfterFunc(d, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.wake.Broadcast()
		})
		g.wake.Wait()
		t.Stop()
		g.stats.Shadow.ThrottleTime.Add(int64(time.Since(now)))
	}
}

// next waits for requests and makes them current. It returns false when the guest is removed.
func (g *Guest) next() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &g.work
	for w.pending.empty() && !w.closing || !w.current.empty() { // a trap is on the fast path
		g.wake.Wait()
	}
	g.throttle()
	if w.closing {
		return false
	}
	starts := g.starts(&w.pending)
	if w.ending = !starts && w.pending.bindsOnly(); g.mustFlush(&w.pending) {
		g.flushDeferred()
	}
	w.current, w.pending = w.pending, requests{}
	w.current.doorbells.Each(func(id uint8) {
		if ch := g.channels.Table[id].Channel; ch != nil {
			ch.BeginRound()
		}
	})
	w.begun++
	return true
}

// starts reports whether the requests may let a channel run. Guest.mu is held.
func (g *Guest) starts(t *requests) bool {
	if !t.doorbells.Empty() || t.runlist || t.schedule {
		return true
	}
	binds := false
	t.bind.Each(func(id uint8) { binds = binds || g.channels.Table[id].Bound })
	return binds
}

// mustFlush reports whether the requests may let a channel run that needs deferred
// invalidates flushed. A doorbell lets only its own channel run. Guest.mu is held.
func (g *Guest) mustFlush(t *requests) (must bool) {
	rest := *t
	rest.doorbells = fifo.Set{}
	if g.starts(&rest) {
		return true
	}
	t.doorbells.Each(func(id uint8) {
		ch := g.channels.Table[id].Channel
		must = must || ch == nil || g.shadows.NeedsFlush(ch.Key())
	})
	return must
}

// finish ends a round: it submits the doorbells that waited for it, and registers that poll
// for the round read complete.
func (g *Guest) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &g.work
	if w.current.reset {
		g.channels.Forget()
		g.leaveQuarantine()
	}
	doorbells := w.current.doorbells
	if !w.current.doorbellsOnly() {
		defer g.reports.Done(w.current.runlist)
	}
	if g.channels.Asked() {
		w.credits = maxCredits
	}
	w.current, w.ending = requests{}, false
	w.done = w.begun
	doorbells.Each(func(id uint8) {
		if ch := g.channels.Ready(id); ch != nil {
			ch.SubmitRound()
		}
	})
	g.wake.Broadcast()
}

// rebind makes the card's channel match the guest's table, and reports whether it opened one.
// When it returns, the guest's requests go to that channel, even within this round. A bind that
// arrived after the round began is left to the next round.
func (g *Guest) rebind(id uint8) (opened bool) {
	g.mu.Lock()
	c := &g.channels.Table[id]
	old, want, inst := c.Channel, c.Bound && g.quarantine.reason == "" && !g.work.pending.bind.Has(id), c.Inst
	c.Channel, g.channels.Leaving = nil, c.Channel
	g.mu.Unlock()
	if old != nil {
		g.channels.Close(old)
	}
	var ch *fifo.Channel
	if want {
		ch = g.channels.Open(id, inst)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.work.pending.bind.Has(id) {
		g.channels.Rebinding.Remove(id)
	}
	g.channels.Leaving = nil
	if ch == nil {
		if want {
			g.reports.Unbound() // at the end of the round
		}
		return false
	}
	c.Channel = ch
	if g.quarantine.reason != "" {
		g.rebindSoon(id)
		return true
	}
	if g.channels.Ready(id) != ch {
		return true // unbound meanwhile
	}
	if c.Enabled {
		g.runChannel(ch)
	}
	if g.agg.gate != nil { // else the card has the work that was submitted before the bind
		ch.SubmitAll()
	}
	return true
}

// refreshShadows updates the shadows that the round requires and makes the card invalidate.
// It precedes everything that lets channels run.
func (g *Guest) refreshShadows(t *requests) {
	if t.policy != nil {
		g.follow(*t.policy)
	}
	due := t.invalidate.Any() && !g.deferAll(t)
	switch {
	case t.entries:
		g.shadows.Update(shadow.Dirs{}) // covers all spaces
	case due:
		g.shadows.Update(t.invalidate)
	}
	if due && g.channels.Stale() { // eagerly applied entries wait for their invalidate
		g.channels.Invalidate()
	}
}

// follow changes how the shadows are maintained.
func (g *Guest) follow(p shadowpt.Policy) {
	if g.shadows.SetPolicy(p) {
		g.channels.Invalidate()
	}
	if p.Sync != shadowpt.SyncLazy {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.flushDeferred()
	}
}

// deferAll defers the invalidates of a round that lets no channel run.
func (g *Guest) deferAll(t *requests) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.starts(t) && g.deferInvalidate(t.invalidate)
}

// reschedule makes the card follow Schedule.
func (g *Guest) reschedule() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.channels.Table {
		ch := g.channels.Ready(uint8(id))
		switch {
		case ch == nil || !g.channels.Table[id].Enabled:
		case g.channels.Blocked:
			ch.Card().Disable()
		default:
			g.runChannel(ch)
		}
	}
}

// commit takes over the guest's runlist: channels that are no longer on it leave the card. A
// runlist outside the guest's memory is empty and reported as an error.
func (g *Guest) commit(base, count uint32) {
	listed, ok := g.channels.ReadRunlist(base, count)
	g.mu.Lock()
	if !ok {
		g.stats.BadRunlist.Add(1)
		g.reports.Unlisted() // at the end of the round
	}
	left := g.setListed(listed)
	g.mu.Unlock()
	g.channels.TakeOff(left)
}

// setListed makes now the guest's runlist, and returns the channels that leave it. Guest.mu is
// held.
func (g *Guest) setListed(now fifo.Set) (left []*fifo.Channel) {
	left, joined := g.channels.SetListed(now)
	for _, ch := range joined {
		g.runChannel(ch)
	}
	return left
}
