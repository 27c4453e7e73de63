package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// route is the aggregator's interrupt handler: it reads what happened, acknowledges it,
// and records it for the guests concerned. It never waits for a guest.
func (a *Aggregator) route() {
	defer a.routing.Done()
	for {
		select {
		case <-a.closing:
			return
		case <-a.bus.intr:
		}
		for !a.routeAll() {
			// A broken card that interrupts for ever must not take a processor.
			select {
			case <-a.closing:
				return
			case <-time.After(a.opts.InterruptPause):
			}
		}
	}
}

// routeAll handles everything that the card reports now. It returns false if the card
// still reports something after InterruptBurst rounds.
func (a *Aggregator) routeAll() bool {
	a.routeMu.Lock()
	defer a.routeMu.Unlock()
	for range a.opts.InterruptBurst {
		intr := a.ctl.rd(regPMCIntr) & intrOurs
		if intr == 0 {
			return true
		}
		if intr&intrPFIFO != 0 {
			a.routeFIFO()
		}
		if intr&intrPGRAPH != 0 {
			a.routeGraph()
		}
		for e, bit := range []uint32{intrCE0, intrCE1} {
			if intr&bit != 0 {
				a.routeCopy(e)
			}
		}
	}
	return false
}

func (a *Aggregator) routeFIFO() {
	intr := a.ctl.rd(regFIFOIntr)
	if intr&gf100.IntrEngine != 0 {
		a.routeEngines()
	}
	if intr&gf100.IntrMMUFault != 0 {
		each32(a.ctl.rd(regFaultID), a.routeFault)
	}
	if intr&gf100.IntrPBDMA != 0 {
		each32(a.ctl.rd(regPBDMAID), a.routePBDMA)
	}
	if intr&gf100.IntrRunlist != 0 {
		a.ctl.wr(regRunlistIntr, ^uint32(0)) // commitRunlist polls instead
	}
	a.ctl.wr(regFIFOIntr, intr)
}

// each32 calls f with the number of each set bit.
func each32(mask uint32, f func(i uint32)) {
	for i := range uint32(32) {
		if mask>>i&1 != 0 {
			f(i)
		}
	}
}

// routeEngines forwards non-stall events. The card does not report the channel, so every
// guest gets the event if one of its channels may have run since the last one. Its driver
// then checks its fences.
func (a *Aggregator) routeEngines() {
	engines := a.ctl.rd(regEngEvent)
	each32(engines, func(e uint32) { a.ctl.wr(regEngEventStatus+e*4, ^uint32(0)) })
	for _, g := range a.everybody() {
		g.engineEvent(engines)
	}
}

func (a *Aggregator) everybody() []*Guest {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*Guest
	for _, g := range a.guests {
		if g != nil && !g.removed {
			list = append(list, g)
		}
	}
	return list
}

func (g *Guest) engineEvent(engines uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mayHaveRun := false
	for i := range g.channels {
		if ch := g.channels[i].ch; ch != nil && ch.takeMayHaveRun() {
			mayHaveRun = true
		}
	}
	if mayHaveRun {
		g.stats.EngineEvents.Add(1)
		g.events.engines |= engines
		g.eventsReady.Signal()
	}
}

// fail stops a channel at an error and reports it to the guest, unless the guest has
// unbound the channel.
func (ch *channel) fail(e channelError) {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels[ch.gid].ch != ch {
		return
	}
	g.agg.ctl.disable(ch.id)
	ch.stop(e)
	g.errorBudget.spend(time.Now(), g.agg.opts.ErrorRate, 1)
	if g.errorBudget.level > g.agg.opts.ErrorBurst {
		g.quarantineLocked("it stops the card's engines too often")
	}
}

// stop records a channel's error. The channel stays off the card until the driver has
// handled the error or, after an MMU fault, binds it again. Guest.mu is held.
func (ch *channel) stop(e channelError) {
	e.id = ch.gid
	ch.stopped, ch.held, ch.retry = true, e.kind != mmuFault, false
	ch.failed = e.pbdma
	if t := ch.guest.agg.gate; t != nil && ch.ended() {
		t.giveUp(ch)
	}
	ch.guest.events.fail(e)
	ch.guest.eventsReady.Signal()
}

// routeFault reports an MMU fault to the channel's owner.
func (a *Aggregator) routeFault(unit uint32) {
	slot := unit * strideFault
	f := gf100.MMUFault{
		Unit: uint8(unit),
		Inst: uint64(a.ctl.rd(regFault+slot)) << 12,
		VA:   uint64(a.ctl.rd(regFaultHi+slot))<<32 | uint64(a.ctl.rd(regFaultLo+slot)),
		Info: a.ctl.rd(regFaultInfo + slot),
	}
	if ch := a.ownerOf(f.Inst); ch != nil {
		ch.guest.stats.MMUFaults.Add(1)
		f.Inst = ch.guestInst
		ch.fail(channelError{kind: mmuFault, fault: f})
	}
	a.ctl.wr(regFaultID, 1<<unit)
}

// methodPassed is the NOP that nouveau, too, writes over a method to skip it.
const methodPassed = 0x80600008

// routePBDMA reports a method that no engine accepts to the channel's owner. The card's
// PBDMA skips the method and continues with other channels; the channel waits for its
// driver off the card. See Retry.
func (a *Aggregator) routePBDMA(unit uint32) {
	p := unit * stridePBDMA
	e := gf100.PBDMAError{
		PBDMA:  uint8(unit),
		Intr:   a.ctl.rd(regPBDMAIntr + p),
		Method: a.ctl.rd(regPBDMAMethod + p),
		Data:   a.ctl.rd(regPBDMAData + p),
	}
	if ch := a.owner(uint8(a.ctl.rd(regPBDMAChannel+p) & (gf100.Channels - 1))); ch != nil {
		ch.guest.stats.PBDMAErrors.Add(1)
		e.Channel = ch.gid
		ch.fail(channelError{kind: pbdmaError, pbdma: e})
	}
	a.ctl.wr(regPBDMAMethod+p, methodPassed)
	a.ctl.wr(regPBDMAIntr+p, e.Intr)
}

// routeGraph reports a method that the graphics engine refused to the owner of its current
// channel, and lets the engine continue with other channels.
func (a *Aggregator) routeGraph() {
	addr := a.ctl.rd(regGraphAddr)
	t := gf100.GraphTrap{
		Intr:       a.ctl.rd(regGraphIntr),
		Inst:       uint64(a.ctl.rd(regGraphContext)&contextInst) << 12,
		Subchannel: uint8(addr >> 16 & 7),
		Method:     addr & 0x3ffc,
		Data:       a.ctl.rd(regGraphData),
		DataError:  a.ctl.rd(regGraphError),
	}
	t.Class = uint16(a.ctl.rd(regGraphClass + uint32(t.Subchannel)*4))
	if ch := a.ownerOf(t.Inst); ch != nil {
		ch.guest.stats.EngineErrors.Add(1)
		t.Inst = ch.guestInst
		ch.fail(channelError{kind: graphTrap, graph: t})
	}
	a.ctl.wr(regGraphTrap, ^uint32(0))
	a.ctl.wr(regGraphIntr, ^uint32(0))
	a.ctl.wr(regGraphFIFO, graphGoOn)
}

// routeCopy is routeGraph for a copy engine, whose microcode leaves the refused method in
// its mailboxes.
func (a *Aggregator) routeCopy(e int) {
	ce := uint32(e) * strideCopy
	where := a.ctl.rd(regCopyMailbox + ce)
	t := gf100.CopyTrap{
		Engine:     e,
		Inst:       uint64(a.ctl.rd(regCopyContext+ce)&contextInst) << 12,
		Subchannel: uint8(where >> 27 & 7),
		Method:     where >> 16 & 0x7ff << 2,
		Status:     where & 0xffff,
		Data:       a.ctl.rd(regCopyMailbox + ce + 4),
	}
	if ch := a.ownerOf(t.Inst); ch != nil {
		ch.guest.stats.EngineErrors.Add(1)
		t.Inst = ch.guestInst
		ch.fail(channelError{kind: copyTrap, copy: t})
	}
	a.ctl.wr(regCopyClear+ce, ^uint32(0))
}
