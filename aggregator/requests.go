package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// The requests of a virtual GPU. These calls come from traps: they record the request and
// return.

// Time returns the card's time in nanoseconds. It is computed, because reading the card
// costs too much for its frequency.
func (g *Guest) Time() uint64 { return g.agg.time() }

// Bind has a channel of the card opened for the guest's channel, or closed. One that was open before
// is closed: what the guest's structures say may have changed.
func (g *Guest) Bind(id uint32, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bind(id, on)
}

func (g *Guest) bind(id uint32, on bool) {
	if g.channels.SetBound(id, on) {
		g.reports.Forget(id)
		g.rebindSoon(id)
	}
}

// rebindSoon has the worker bind or unbind a channel. Guest.mu is held.
func (g *Guest) rebindSoon(id uint32) {
	g.channels.WillRebind(id)
	g.state.Pending.Bind.Add(id)
	g.wake.Broadcast()
}

// Allow says whether a channel may run, and acts at once.
func (g *Guest) Allow(id uint32, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels.Allow(id, on)
	ch := g.channels.Ready(id)
	switch {
	case ch == nil: // the worker checks May after the bind
	case on:
		g.resumeChannel(ch)
	default:
		ch.Disable()
	}
}

// AllowSoon says which channels may run. The worker makes the card follow, so that repeated changes
// collapse into two rounds.
func (g *Guest) AllowSoon(may channels.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels.AllowSoon(may)
	g.state.Pending.Follow = true
	g.wake.Broadcast()
}

// AllowNow says which channels may run, and disables those of off.
func (g *Guest) AllowNow(may, off channels.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runChannels(g.channels.SetMay(may, off))
}

// TakeOff makes disabled channels leave the card. It belongs to the worker: a face calls it in its Round.
func (g *Guest) TakeOff(off channels.Set) {
	var left []*channels.Channel
	g.locked(func() { left = g.channels.Of(off) })
	g.channels.TakeOff(left)
}

// Ask has the face's Round called by the worker.
func (g *Guest) Ask(a Ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Asked, g.state.Pending.Ask = true, a
	g.wake.Broadcast()
}

// Pending returns which requests have not taken effect.
func (g *Guest) Pending() channels.Pending {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, now := &g.state.Pending, &g.work.current
	return channels.Pending{
		Bind: !t.Bind.Empty() || !now.Bind.Empty(), Asked: t.Asked || now.Asked,
		Preempt: !t.Preempt.Empty() || !now.Preempt.Empty(), Invalidate: t.Invalidating || now.Invalidating,
	}
}

// Preempt asks a channel to leave the card.
func (g *Guest) Preempt(id uint32) {
	g.stats.Preempts.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Preempt.Add(id)
	g.wake.Broadcast()
}

// Invalidate invalidates an address space, or all: the card's translations, and what mapped windows show.
func (g *Guest) Invalidate(key shadow.Key, all bool) {
	g.InvalidateWindows(key.Target, key.Dir, all)
	asked := shadow.Only(key)
	if all {
		asked = shadow.All
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Invalidates.Add(1)
	if g.idle() && g.deferInvalidate(asked) {
		return
	}
	g.state.Pending.Invalidate.Merge(asked)
	g.state.Pending.Invalidating = true
	g.wake.Broadcast()
}

// Refresh shows the guest what the card reports of a channel, before the guest reads it.
func (g *Guest) Refresh(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels.Ready(id); ch != nil {
		ch.Show()
	}
}

// Serving returns the guest's channel that an engine works for. serves is false if the engine is idle or
// works for another guest. ready is false while a bind or unbind of the channel is under way.
func (g *Guest) Serving(e card.Engine) (id uint32, ready, serves bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels.Serving(e)
	if ch == nil {
		return 0, false, false
	}
	return ch.ID, g.channels.Ready(ch.ID) == ch, true
}

// End ends a channel with a fault of an engine, as a driver does to one that hangs.
func (g *Guest) End(id uint32, e card.Engine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels.Ready(id); ch != nil && !ch.Ended() {
		g.stats.Channels.MMUFaults.Add(1)
		g.stop(ch, channels.EngineFault(e))
	}
}

// Busy reports whether the card is executing a channel.
func (g *Guest) Busy(id uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels.Channel(id)
	return ch != nil && ch.Card().Running()
}

// Resume reports that the guest's driver has handled the error that held a channel, which continues
// after the method. With retry the method is tried again.
func (g *Guest) Resume(id uint32, retry bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels.Ready(id); ch != nil && ch.Continue(retry) && g.channels.May.Has(id) {
		g.resumeChannel(ch)
	}
}

// Doorbell handles a guest's write of GP_PUT of a channel, after a flush of aliases. If no
// pending request affects the submission, the card gets it immediately.
func (g *Guest) Doorbell(id uint32) {
	g.mu.Lock()
	b, changed := g.channels.ReadPut(id)
	g.mu.Unlock()
	if changed {
		g.MemoryBarrier() // the mover of pages, which it waits for, may wait for engines
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring(id, g.channels.NotePut(b))
}

// ring submits a channel's work, if no request is pending or current and aliases were flushed
// for its GP_PUT. Else a round flushes and submits. Guest.mu is held.
func (g *Guest) ring(id uint32, flushed bool) {
	g.stats.Doorbells.Add(1)
	if !g.channels.Bound.Has(id) {
		return
	}
	if ch := g.channels.Channel(id); ch != nil && flushed && g.idle() && !g.shadows.NeedsFlush(ch.Key()) {
		ch.SubmitAll()
		return
	}
	g.state.Pending.Doorbells.Add(id)
	if !flushed {
		g.state.Pending.Flush.Add(id)
	}
	g.wake.Broadcast()
}

// deferInvalidate defers an invalidate if its channels are quiet, and reports whether it did. No
// request is pending or current: one could let a channel run, or end one whose state is still to be
// written to memory that the guest may reuse after the invalidate. Guest.mu is held.
func (g *Guest) deferInvalidate(v shadow.Dirs) bool {
	if g.shadows.Policy().Sync != shadowpt.SyncLazy {
		return false
	}
	used, quiet := g.channels.Quiet(v)
	if quiet {
		g.shadows.Defer(v, used)
	}
	return quiet
}

// flushDeferred schedules all deferred invalidates for the next round. Guest.mu is held.
func (g *Guest) flushDeferred() {
	g.state.Pending.Invalidate.Merge(g.shadows.TakeDeferred())
	g.wake.Broadcast()
}
