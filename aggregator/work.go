package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// run is the guest's worker goroutine. Each round executes the pending requests in the order
// of their dependencies.
func (g *Guest) run() {
	defer g.locked(func() { g.work.ended = true; g.wake.Broadcast() })
	defer fault.Contain(g, "the last round of its worker")
	for g.next() {
		g.round(&g.work.current) // stable until finish
		g.finish()
	}
	g.channels.Begin()
	var left []*channels.Channel
	g.locked(func() { left = g.channels.TakeAll() })
	for _, ch := range left {
		g.channels.Close(ch)
	}
	g.channels.Reap()
}

func (g *Guest) round(t *Requests) {
	defer fault.Contain(g, "its worker")
	g.channels.Begin()
	g.shadows.Begin()
	if !t.Flush.Empty() {
		t.Flush.Each(g.channels.Reread)
		g.MemoryBarrier()
	}
	g.refreshShadows(t)
	if t.Follow {
		g.locked(func() { g.runChannels(g.channels.Follow()) })
	}
	opened := false
	t.Bind.Each(func(id uint32) { opened = g.rebind(id) || opened })
	if t.Reset {
		g.locked(func() { g.channels.SetMay(channels.Set{}, channels.Set{}) })
		g.channels.Reap()
	}
	if g.shadows.Stale() && !t.Bind.Empty() {
		g.channels.Invalidate()
	}
	if opened {
		g.channels.Commit()
	}
	if t.Asked && !t.Reset {
		g.work.notes = g.face.Round(t.Ask)
	}
	if !t.Preempt.Empty() {
		g.TakeOff(t.Preempt)
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
	for !g.work.closing && !g.state.Pending.Reset {
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
	for g.state.Pending.empty() && !w.closing {
		g.wake.Wait()
	}
	g.throttle()
	if w.closing {
		return false
	}
	if g.mustFlush(&g.state.Pending) {
		g.flushDeferred()
	}
	w.current, g.state.Pending = g.state.Pending, Requests{}
	for _, ch := range g.channels.Of(w.current.Doorbells) {
		ch.BeginRound()
	}
	w.begun++
	return true
}

// mustFlush reports whether the requests may let a channel run that needs deferred
// invalidates flushed. A doorbell lets only its own channel run. Guest.mu is held.
func (g *Guest) mustFlush(t *Requests) bool {
	must := t.Asked || t.Follow
	t.Bind.Each(func(id uint32) { must = must || g.channels.Bound.Has(id) })
	t.Doorbells.Each(func(id uint32) {
		ch := g.channels.Channel(id)
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
	if w.current.Reset {
		g.leaveQuarantine()
	}
	doorbells := w.current.Doorbells
	if !w.current.unpolled() {
		defer g.reports.Done(w.notes)
	}
	w.current, w.notes = Requests{}, 0
	w.done = w.begun
	doorbells.Each(func(id uint32) {
		if ch := g.channels.Ready(id); ch != nil {
			ch.SubmitRound()
		}
	})
	g.wake.Broadcast()
}

// rebind makes the card's channel match the guest's table, and reports whether it opened one.
// When it returns, the guest's requests go to that channel, even within this round. A bind that
// arrived after the round began is left to the next round.
func (g *Guest) rebind(id uint32) (opened bool) {
	g.mu.Lock()
	old, want := g.channels.BeginRebind(id)
	want = want && g.state.Quarantined == "" && !g.state.Pending.Bind.Has(id)
	g.mu.Unlock()
	if old != nil {
		g.channels.Close(old)
	}
	var ch *channels.Channel
	if want {
		ch = g.channels.Open(id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	again := g.state.Pending.Bind.Has(id)
	g.channels.EndRebind(id, ch, again)
	if ch == nil {
		if want && !again {
			g.reports.Refused(id) // at the end of the round
		}
		return false
	}
	if g.state.Quarantined != "" {
		g.rebindSoon(id)
		return true
	}
	if g.channels.Ready(id) != ch {
		return true // unbound meanwhile
	}
	if g.channels.May.Has(id) {
		g.runChannel(ch)
	}
	if g.agg.gate != nil { // else the card has the work that was submitted before the bind
		ch.SubmitAll()
	}
	return true
}

// refreshShadows updates the shadows that the round requires and makes the card invalidate.
// It precedes everything that lets channels run.
func (g *Guest) refreshShadows(t *Requests) {
	if t.Policy != nil {
		g.follow(*t.Policy)
	}
	if !t.Invalidate.Any() {
		return
	}
	g.shadows.Update(t.Invalidate)
	if g.channels.Stale() {
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
