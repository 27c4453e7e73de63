package aggregator

import "github.com/umbra-gpu/umbra/mmio/gf100"

// route is the aggregator's interrupt handler: it asks the card what happened,
// acknowledges it, and tells the guests whose channels it concerns.
func (a *Aggregator) route() {
	defer a.routing.Done()
	for range a.bus.intr {
		for a.ctl.rd(regPMCIntr)&intrPFIFO != 0 {
			a.routeFIFO()
		}
	}
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
		a.ctl.wr(regRunlistIntr, ^uint32(0)) // the waiting is done by polling
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

// routeEngines delivers non-stall events. The card does not say which channel
// asked for one, so each guest with a channel that has moved since the last time,
// or that is still moving, hears of it: a driver looks at its fences and finds
// them as they are.
func (a *Aggregator) routeEngines() {
	engines := a.ctl.rd(regEngEvent)
	each32(engines, func(e uint32) { a.ctl.wr(regEngEventStatus+e*4, ^uint32(0)) })
	for _, g := range a.everybody() {
		if g.moved() {
			g.stats.EngineEvents.Add(1)
			g.ev.EngineEvent(engines)
		}
	}
}

func (a *Aggregator) everybody() []*Guest {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*Guest
	for _, g := range a.guests {
		if g != nil {
			list = append(list, g)
		}
	}
	return list
}

// moved reports whether one of the guest's channels has fetched anything since
// the last call, or still has something to fetch.
func (g *Guest) moved() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	moved := false
	for i := range g.channels {
		ch := g.channels[i].ch
		if ch == nil {
			continue
		}
		get, put := ch.gpGet()
		if get != ch.lastGet || get != put {
			moved = true
		}
		ch.lastGet = get
	}
	return moved
}

// routeFault tells the channel's owner of an MMU fault. The channel stays off
// the card until its driver binds it anew.
func (a *Aggregator) routeFault(unit uint32) {
	at := regFault + unit*0x10
	f := gf100.MMUFault{
		Unit: uint8(unit),
		Inst: uint64(a.ctl.rd(at)) << 12,
		VA:   uint64(a.ctl.rd(at+8))<<32 | uint64(a.ctl.rd(at+4)),
		Info: a.ctl.rd(at + 12),
	}
	ch := a.ownerOf(f.Inst)
	if ch == nil {
		a.ctl.wr(regFaultID, 1<<unit)
		return
	}
	a.stop(ch, false)
	a.ctl.wr(regFaultID, 1<<unit)
	ch.guest.stats.MMUFaults.Add(1)
	f.Inst = ch.guestInst
	ch.guest.ev.MMUFault(f)
}

// stop keeps a channel from running until its guest says more.
func (a *Aggregator) stop(ch *channel, held bool) {
	ch.guest.mu.Lock()
	ch.stopped, ch.held = true, held
	a.ctl.disable(ch.id)
	ch.guest.mu.Unlock()
}

// methodPassed is what nouveau, too, writes over a method that is to be passed
// over: a NOP.
const methodPassed = 0x80600008

// routePBDMA tells the channel's owner of a method that no engine takes. The
// card's PBDMA is freed at once, for the others: it is the channel that waits
// for its driver, off the card.
func (a *Aggregator) routePBDMA(unit uint32) {
	base := regPBDMA + unit*0x2000
	e := gf100.PBDMAError{
		PBDMA:  uint8(unit),
		Intr:   a.ctl.rd(base + 0x108),
		Method: a.ctl.rd(base + 0x0c0),
		Data:   a.ctl.rd(base + 0x0c4),
	}
	ch := a.owner(uint8(a.ctl.rd(base+0x120) & (gf100.Channels - 1)))
	if ch != nil {
		a.stop(ch, true)
	}
	a.ctl.wr(base+0x0c0, methodPassed)
	a.ctl.wr(base+0x108, e.Intr)
	if ch == nil {
		return
	}
	ch.guest.stats.PBDMAErrors.Add(1)
	e.Channel = ch.gid
	ch.guest.ev.PBDMAError(e)
}
