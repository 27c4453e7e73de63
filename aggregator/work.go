package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// run is the guest's worker goroutine. Each round executes the pending requests in the order
// of their dependencies.
func (g *Guest) run() {
	defer g.working.Done()
	for g.next() {
		g.round(&g.work.current) // stable until finish
		g.finish()
	}
	g.work.cardTimedOut = false
	g.mu.Lock()
	left := g.channels.TakeAll()
	g.mu.Unlock()
	for _, ch := range left {
		g.close(ch)
	}
	g.reap()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work.ended = true
	g.wake.Broadcast()
	g.reported.Broadcast()
}

func (g *Guest) round(t *requests) {
	g.work.cardTimedOut = false
	g.shadows.Begin()
	if !t.flush.Empty() {
		t.flush.Each(g.rereadPut)
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
		g.reap()
	}
	if g.shadows.Stale() && !t.bind.Empty() {
		g.invalidateCard()
	}
	if opened {
		g.work.credits = maxCredits
		if !g.share.Commit() {
			g.noteCardTimeout()
		}
	}
	if t.runlist {
		g.commit(t.base, t.count)
	}
	g.preempt(t.preempt)
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
	g.events.done = g.events.done || !w.current.doorbellsOnly()
	g.events.runlist = g.events.runlist || w.current.runlist
	w.current, w.ending = requests{}, false
	w.done = w.begun
	doorbells.Each(func(id uint8) {
		if ch := g.channels.Ready(id); ch != nil {
			ch.SubmitRound()
		}
	})
	g.wake.Broadcast()
	if !g.events.empty() {
		g.reported.Broadcast()
	}
}

// rereadPut reads GP_PUT of a channel that had a doorbell before it was bound, or for which
// aliases were not flushed. The round flushes afterwards.
func (g *Guest) rereadPut(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels.Table[id].Channel
	if ch == nil {
		return // the round binds it and reads GP_PUT then
	}
	b := ch.Begin()
	g.mu.Unlock()
	b.Reread()
	g.mu.Lock()
	g.channels.NotePut(b)
	ch.BeginRound()
}

// rebind makes the card's channel match the guest's table, and reports whether it opened one.
// When it returns, the guest's requests go to that channel, even within this round. A bind that
// arrived after the round began is left to the next round.
func (g *Guest) rebind(id uint8) (opened bool) {
	g.mu.Lock()
	c := &g.channels.Table[id]
	old, want, inst := c.Channel, c.Bound && g.quarantine.reason == "" && !g.work.pending.bind.Has(id), c.Inst
	c.Channel, g.work.leaving = nil, c.Channel
	g.mu.Unlock()
	if old != nil {
		g.close(old)
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
	g.work.leaving = nil
	if ch == nil {
		g.events.unbound = g.events.unbound || want // delivered at the end of the round
		return false
	}
	c.Channel = ch
	if g.quarantine.reason != "" {
		g.rebindSoon(id)
		return true
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
	if due && (g.shadows.Stale() || len(g.work.waiting) > 0) { // eagerly applied entries wait for their invalidate
		g.invalidateCard()
	}
}

// follow changes how the shadows are maintained.
func (g *Guest) follow(p shadowpt.Policy) {
	if g.shadows.SetPolicy(p) {
		g.invalidateCard()
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
		g.events.unlisted = true // delivered at the end of the round
	}
	left := g.setListed(listed)
	g.mu.Unlock()
	if len(left) > 0 {
		g.takeOff(left)
	}
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

// preempt takes channels off the card. They may come back.
func (g *Guest) preempt(ids fifo.Set) {
	var asked []*fifo.Channel
	g.mu.Lock()
	ids.Each(func(id uint8) {
		if ch := g.channels.Table[id].Channel; ch != nil {
			asked = append(asked, ch)
		}
	})
	g.mu.Unlock()
	if len(asked) > 0 {
		g.takeOff(asked)
	}
}

// takeOff preempts channels and saves their state.
func (g *Guest) takeOff(list []*fifo.Channel) {
	g.work.credits = maxCredits
	cards := make([]card.Channel, len(list))
	for i, ch := range list {
		cards[i] = ch.Card()
	}
	if !g.agg.gpu.Preempt(cards...) {
		g.noteCardTimeout()
	}
	g.removedFromCard(list)
}

// removedFromCard saves the state of channels that have left the card into guest memory. A
// channel that did not leave although it must quarantines the guest.
func (g *Guest) removedFromCard(list []*fifo.Channel) {
	for _, ch := range list {
		g.mu.Lock()
		may := g.channels.MayRun(ch)
		g.mu.Unlock()
		if !may && ch.Card().Running() {
			g.Quarantine("a channel does not leave the card")
			continue
		}
		ch.SaveBack()
		g.mu.Lock()
		ch.SetSaved(!may)
		g.mu.Unlock()
	}
}
