package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// The requests of a virtual GPU. These calls come from traps: they record the request and
// return.

// Time returns the card's PTIMER in nanoseconds. It is computed, because reading the card
// costs too much for its frequency.
func (g *Guest) Time() uint64 { return g.agg.time() }

// Bind acts on a write of NV_PCCSR_CHANNEL_INST: bit 31 binds the channel to the
// instance block whose page number is in bits 27:0, else it is unbound.
func (g *Guest) Bind(id uint8, v uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bind(id, uint64(v&gf100.InstanceAddr)<<12, v&gf100.InstanceBound != 0)
}

func (g *Guest) bind(id uint8, inst uint64, on bool) {
	if g.channels.SetBound(id, inst, on) {
		g.reports.Forget(id)
		g.rebindSoon(id)
	}
}

// rebindSoon has the worker bind or unbind a channel. Guest.mu is held.
func (g *Guest) rebindSoon(id uint8) {
	g.channels.WillRebind(id)
	g.state.Pending.Bind.Add(id)
	g.wake.Broadcast()
}

// Enable acts on bit 0 of NV_PCCSR_CHANNEL.
func (g *Guest) Enable(id uint8, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels.SetEnabled(id, on)
	ch := g.channels.Ready(id)
	switch {
	case ch == nil: // the worker checks Enabled after the bind
	case on:
		g.resumeChannel(ch)
	default:
		ch.Disable()
	}
}

// Schedule acts on NV_PFIFO_ENABLE and NV_PFIFO_SCHED_DISABLE: whether this guest's channels
// may run. The worker makes the card follow, so that repeated changes collapse into two rounds.
func (g *Guest) Schedule(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels.SetBlocked(!on) {
		g.state.Pending.Schedule = true
		g.wake.Broadcast()
	}
}

// Runlist acts on a write of NV_PFIFO_RUNLIST: base is NV_PFIFO_RUNLIST_BASE,
// count the number of entries.
func (g *Guest) Runlist(base, count uint32) {
	g.stats.Runlists.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &g.state.Pending
	t.Runlist, t.Base, t.Count = true, base, count
	g.wake.Broadcast()
}

// RunlistPending reports whether the last runlist has not taken effect.
func (g *Guest) RunlistPending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Pending.Runlist || g.work.current.Runlist
}

// Preempt asks a channel to leave the card.
func (g *Guest) Preempt(id uint8) {
	g.stats.Preempts.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Preempt.Add(id)
	g.wake.Broadcast()
}

// PreemptPending reports whether a preempt has not taken effect.
func (g *Guest) PreemptPending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.state.Pending.Preempt.Empty() || !g.work.current.Preempt.Empty()
}

// Invalidate acts on a write of NV_PFB_PRI_MMU_INVALIDATE; pdb is the register
// before it, which names the directory.
func (g *Guest) Invalidate(pdb, v uint32) {
	key, all := shadow.Key{Dir: uint64(pdb>>4) << 12, Target: shadowpt.Target(pdb & 3)}, v&gf100.InvalidateAllDirs != 0
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

// Invalidated reports whether every invalidate has taken effect, also in mapped windows.
func (g *Guest) Invalidated() bool {
	if !g.Shown() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.state.Pending.Invalidating && !g.work.current.Invalidating
}

// Refresh copies what the card reports in a channel's USERD to the guest's, before the guest
// reads it.
func (g *Guest) Refresh(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels.Ready(id); ch != nil {
		ch.ShowUSERD()
	}
}

// EngineStatus returns NV_PFIFO_ENGINE_STATUS of an engine as the guest may see
// it: another guest's channel reads as idle.
func (g *Guest) EngineStatus(engine int) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := structs.Engine(engine); ok {
		if ch := g.channels.Serving(e); ch != nil {
			return gf100.EngineBusy | uint32(ch.ID)
		}
	}
	return 0
}

// TriggerFault acts on bit 8 of NV_PFIFO_MMU_FAULT_TRIGGER, with which a driver ends a hung
// channel: the channel that NV_PFIFO_ENGINE_STATUS shows, or showed last, gets a fault of
// that engine and is taken off the card. The card's own register would end the channel of
// any guest.
func (g *Guest) TriggerFault(engine int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := structs.Engine(engine)
	if !ok {
		return
	}
	if ch := g.channels.LastServed(e); ch != nil && !ch.Ended() {
		g.stats.FIFO.MMUFaults.Add(1)
		g.stop(ch, fifo.EngineFault(e))
	}
}

// ChannelBusy reports whether the card is executing a channel.
func (g *Guest) ChannelBusy(id uint8) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels.Channel(id)
	return ch != nil && ch.Card().Running()
}

// Resume reports that the guest's driver has handled the error that held a channel. The
// channel continues after the method.
func (g *Guest) Resume(id uint8) { g.resume(id, false) }

// Retry is Resume for a method that a PBDMA refused and that the driver did not skip.
func (g *Guest) Retry(id uint8) { g.resume(id, true) }

func (g *Guest) resume(id uint8, retry bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels.Ready(id); ch != nil && ch.Continue(retry) && g.channels.Table[id].Enabled {
		g.resumeChannel(ch)
	}
}

// Doorbell handles a guest's write of GP_PUT of a channel, after a flush of aliases. If no
// pending request affects the submission, the card gets it immediately.
func (g *Guest) Doorbell(id uint8) {
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
func (g *Guest) ring(id uint8, flushed bool) {
	g.stats.Doorbells.Add(1)
	if !g.channels.Table[id].Bound {
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
