package aggregator

import (
	"encoding/binary"

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
	g.setBound(id, uint64(v&gf100.InstanceAddr)<<12, v&gf100.InstanceBound != 0)
}

func (g *Guest) setBound(id uint8, inst uint64, on bool) {
	c := &g.channels[id]
	if !c.bound && !on {
		return
	}
	c.inst, c.bound = inst, on
	g.events.forget(id)
	for e := range g.served {
		if g.served[e] == id+1 {
			g.served[e] = 0
		}
	}
	if c.ch != nil && !g.rebinding(id) {
		c.ch.hw.Disable()
		g.showUSERD(c.ch) // from now on the guest may reuse the memory
	}
	g.pending.bind.add(id)
	g.wake.Broadcast()
}

// rebinding reports whether a bind or unbind of the channel is not complete. Guest.mu is
// held.
func (g *Guest) rebinding(id uint8) bool { return g.pending.bind.has(id) || g.binding.has(id) }

// Enable acts on bit 0 of NV_PCCSR_CHANNEL.
func (g *Guest) Enable(id uint8, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.channels[id]
	c.enabled = on
	if c.ch == nil || g.rebinding(id) {
		return // the worker checks enabled after the bind
	}
	if !on {
		c.ch.hw.Disable()
		return
	}
	g.resumeChannel(c.ch)
}

// resumeChannel lets a channel run, after deferred invalidates of its space.
func (g *Guest) resumeChannel(ch *boundChannel) {
	if g.needsFlush(ch) {
		g.pending.schedule = true
		g.flushDeferred()
		return
	}
	g.run(ch)
}

// run lets a channel run if nothing stops it. Guest.mu is held.
func (g *Guest) run(ch *boundChannel) {
	switch {
	case ch.stopped || g.blocked || !g.listed.has(ch.gid):
	case ch.retry:
		g.stats.PBDMAErrors.Add(1)
		ch.stop(channelError{kind: pbdmaError, pbdma: ch.failed})
	case g.agg.gate.Holds(ch): // the scheduler resumes it
	default:
		ch.saved = false
		ch.hw.Enable()
	}
}

// Schedule acts on NV_PFIFO_ENABLE and NV_PFIFO_SCHED_DISABLE: whether this guest's channels
// may run.
func (g *Guest) Schedule(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.blocked == !on {
		return
	}
	g.blocked = !on
	g.pending.schedule = true
	g.wake.Broadcast()
}

// reschedule makes the card follow Schedule. It runs in the worker, so that repeated changes
// collapse into two rounds.
func (g *Guest) reschedule() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.channels {
		c := &g.channels[id]
		switch {
		case c.ch == nil || g.rebinding(uint8(id)) || !c.enabled:
		case g.blocked:
			c.ch.hw.Disable()
		default:
			g.run(c.ch)
		}
	}
}

// Runlist acts on a write of NV_PFIFO_RUNLIST: base is NV_PFIFO_RUNLIST_BASE,
// count the number of entries.
func (g *Guest) Runlist(base, count uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Runlists.Add(1)
	if g.tryDelist(base, count) {
		return
	}
	g.pending.runlist, g.pending.base, g.pending.count = true, base, count
	g.wake.Broadcast()
}

// RunlistPending reports whether the last runlist has not taken effect.
func (g *Guest) RunlistPending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending.runlist || g.current.runlist
}

// Preempt asks a channel to leave the card.
func (g *Guest) Preempt(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Preempts.Add(1)
	if g.tryPreempt(id) {
		return
	}
	g.pending.preempt.add(id)
	g.wake.Broadcast()
}

// PreemptPending reports whether a preempt has not taken effect.
func (g *Guest) PreemptPending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.pending.preempt.empty() || !g.current.preempt.empty()
}

// Invalidate acts on a write of NV_PFB_PRI_MMU_INVALIDATE; pdb is the register
// before it, which names the directory.
func (g *Guest) Invalidate(pdb, v uint32) {
	g.windows.bar1.tlb.Flush()
	g.windows.bar3.tlb.Flush()
	if set := g.mapped.Load(); set != nil {
		set.Invalidate(shadowpt.Target(pdb&3), uint64(pdb>>4)<<12, v&gf100.InvalidateAllDirs != 0)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Invalidates.Add(1)
	var asked invalidations
	if v&gf100.InvalidateAllDirs != 0 {
		asked.all = true
	} else {
		asked.add(spaceKey{uint64(pdb>>4) << 12, shadowpt.Target(pdb & 3)})
	}
	if g.mayDefer() && g.deferInvalidate(&asked) {
		return
	}
	g.pending.invalidate.merge(asked)
	g.pending.asked = true
	g.wake.Broadcast()
}

// Invalidated reports whether every invalidate has taken effect, also in mapped windows.
func (g *Guest) Invalidated() bool {
	if !g.Shown() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.pending.asked && !g.current.asked
}

// Shown reports whether mapped windows are up to date: a store goes to the right page.
func (g *Guest) Shown() bool {
	set := g.mapped.Load()
	return set == nil || !set.Pending()
}

// Refresh copies what the card reports in a channel's USERD to the guest's, before the guest
// reads it.
func (g *Guest) Refresh(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[id].ch; ch != nil && !g.rebinding(id) {
		g.showUSERD(ch)
	}
}

// EngineStatus returns NV_PFIFO_ENGINE_STATUS of an engine as the guest may see
// it: another guest's channel reads as idle.
func (g *Guest) EngineStatus(engine int) uint32 {
	ch, ok := g.agg.gpu.Serving(engine).(*boundChannel)
	if !ok || ch.guest != g {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels[ch.gid].ch == ch && !g.rebinding(ch.gid) {
		g.served[engine] = ch.gid + 1
	}
	return gf100.EngineBusy | uint32(ch.gid)
}

// TriggerFault acts on bit 8 of NV_PFIFO_MMU_FAULT_TRIGGER, with which a driver ends a hung
// channel: the channel that NV_PFIFO_ENGINE_STATUS shows, or showed last, gets a fault of
// that engine and is taken off the card. The card's own register would end the channel of
// any guest.
func (g *Guest) TriggerFault(engine int) {
	g.EngineStatus(engine)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.served[engine] == 0 {
		return
	}
	id := g.served[engine] - 1
	ch := g.channels[id].ch
	if ch == nil || g.rebinding(id) || ch.stopped && !ch.held {
		return
	}
	g.stats.MMUFaults.Add(1)
	ch.hw.Disable()
	f := gf100.EngineClients[engine].Fault(ch.inst, 0, false, uint8(shadowpt.PageNotPresent))
	ch.stop(channelError{kind: mmuFault, fault: f})
}

// ChannelBusy reports whether the card is executing a channel.
func (g *Guest) ChannelBusy(id uint8) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[id].ch
	return ch != nil && ch.hw.Running()
}

// Resume reports that the guest's driver has handled the error that held a channel. The
// channel continues after the method.
func (g *Guest) Resume(id uint8) { g.resume(id, false) }

// Retry is Resume for a method that a PBDMA refused and that the driver did not skip. The
// method would be refused again, so the same error is reported as soon as the channel may
// run, without asking the card.
func (g *Guest) Retry(id uint8) { g.resume(id, true) }

func (g *Guest) resume(id uint8, retry bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.channels[id]
	if c.ch == nil || !c.ch.held || g.rebinding(id) {
		return
	}
	c.ch.held, c.ch.stopped, c.ch.retry = false, false, retry
	if c.enabled {
		g.resumeChannel(c.ch)
	}
}

// readRunlist returns which of the guest's channels a runlist names. A runlist outside the
// guest's memory is empty and reported as an error.
func (g *Guest) readRunlist(base, count uint32) channelSet {
	listed, ok := g.lookAtRunlist(base, count)
	if !ok {
		g.stats.BadRunlist.Add(1)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.events.unlisted = true // delivered at the end of the round
	}
	return listed
}

func (g *Guest) lookAtRunlist(base, count uint32) (listed channelSet, ok bool) {
	n := min(int(count&0xfff), gf100.Channels)
	b := make([]byte, n*gf100.RunlistEntrySize)
	if n > 0 && !g.read(shadowpt.Target(base>>28&3), uint64(base&gf100.InstanceAddr)<<12, b) {
		return listed, false
	}
	for ; len(b) > 0; b = b[gf100.RunlistEntrySize:] {
		if id := binary.LittleEndian.Uint32(b); id < gf100.Channels {
			listed.add(uint8(id))
		}
	}
	return listed, true
}
