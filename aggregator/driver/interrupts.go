package driver

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// listen is the interrupt handler: it reads what happened, acknowledges it, and tells the
// channels concerned. It never waits for a receiver of events.
func (d *Driver) listen() {
	defer d.listening.Done()
	for {
		select {
		case <-d.closing:
			return
		case <-d.interrupt:
		}
		for !d.poll() {
			// A broken card that interrupts for ever must not take a processor.
			select {
			case <-d.closing:
				return
			case <-time.After(d.opts.interruptPause):
			}
		}
	}
}

// Poll implements card.GPU.
func (d *Driver) Poll() { d.poll() }

// poll handles everything that the card reports now. It returns false if the card still
// reports something after interruptBurst rounds.
func (d *Driver) poll() bool {
	d.events.Lock()
	defer d.events.Unlock()
	for range d.opts.interruptBurst {
		d.deliver()
		intr := d.rd(regPMCIntr) & intrOurs
		if intr == 0 {
			return true
		}
		if intr&intrPFIFO != 0 {
			d.pollFIFO()
		}
		if intr&intrPGRAPH != 0 {
			d.pollGraph()
		}
		for e, bit := range []uint32{intrCE0, intrCE1} {
			if intr&bit != 0 {
				d.pollCopy(e)
			}
		}
	}
	return false
}

func (d *Driver) pollFIFO() {
	intr := d.rd(regFIFOIntr)
	if intr&gf100.IntrEngine != 0 {
		each32(d.rd(regEngEvent), func(e uint32) { d.wr(regEngEventStatus+e*4, ^uint32(0)) })
	}
	d.completed()
	if intr&gf100.IntrMMUFault != 0 {
		each32(d.rd(regFaultID), d.pollFault)
	}
	if intr&gf100.IntrPBDMA != 0 {
		each32(d.rd(regPBDMAID), d.pollPBDMA)
	}
	if intr&gf100.IntrRunlist != 0 {
		d.wr(regRunlistIntr, ^uint32(0)) // commitRunlist polls instead
	}
	d.wr(regFIFOIntr, intr)
}

// completed reports non-stall events, which the card has forgotten by now: one that comes later
// interrupts again. Driver.events is held.
func (d *Driver) completed() {
	d.taken = d.TakeEvents(d.taken[:0])
	for _, e := range d.taken {
		ch := d.owner(e.Channel)
		if ch == nil {
			continue
		}
		if e.Broken != "" {
			ch.common().ev.Fault(card.Fault{Kind: card.Broken, Text: e.Broken})
		}
		if e.Engines != 0 {
			d.meter.reported(ch.ID())
			ch.common().ev.Completed(structs.EngineSet(e.Engines))
		}
	}
}

// each32 calls f with the number of each set bit.
func each32(mask uint32, f func(i uint32)) {
	for i := range uint32(32) {
		if mask>>i&1 != 0 {
			f(i)
		}
	}
}

// owner returns the channel with a number, nil if there is none.
func (d *Driver) owner(id uint32) member {
	d.table.Lock()
	defer d.table.Unlock()
	return d.channels[id%gf100.Channels]
}

// failed stops the channel whose instance block is at inst, and returns it.
func (d *Driver) failed(inst uint64) *channel {
	d.table.Lock()
	defer d.table.Unlock()
	for _, m := range d.channels {
		if ch, ok := m.(*channel); ok && ch.inst == inst {
			ch.Disable()
			return ch
		}
	}
	return nil
}

func (d *Driver) pollFault(unit uint32) {
	slot := unit * strideFault
	inst := uint64(d.rd(regFault+slot)) << 12
	f := gf100.MMUFault{
		Unit: uint8(unit),
		VA:   uint64(d.rd(regFaultHi+slot))<<32 | uint64(d.rd(regFaultLo+slot)),
		Info: d.rd(regFaultInfo + slot),
	}
	if ch := d.failed(inst); ch != nil {
		fault := structs.ReadMMUFault(f)
		fault.Text = d.ProgramReport(ch.id)
		ch.ev.Fault(fault)
	}
	d.wr(regFaultID, 1<<unit)
}

// methodPassed is the NOP that nouveau, too, writes over a method to skip it.
const methodPassed = 0x80600008

// pollPBDMA handles a method that no engine accepts. The PBDMA skips the method and continues
// with other channels; the channel waits off the card.
func (d *Driver) pollPBDMA(unit uint32) {
	p := unit * stridePBDMA
	e := gf100.PBDMAError{
		PBDMA:  uint8(unit),
		Intr:   d.rd(regPBDMAIntr + p),
		Method: d.rd(regPBDMAMethod + p),
		Data:   d.rd(regPBDMAData + p),
	}
	if ch := d.owner(d.rd(regPBDMAChannel + p)); ch != nil {
		ch.Disable()
		ch.common().ev.Fault(structs.ReadPBDMAError(e))
	}
	d.wr(regPBDMAMethod+p, methodPassed)
	d.wr(regPBDMAIntr+p, e.Intr)
}

// pollGraph handles a method that the graphics engine refused, and lets the engine continue
// with other channels.
func (d *Driver) pollGraph() {
	addr := d.rd(regGraphAddr)
	inst := uint64(d.rd(regGraphContext)&contextInst) << 12
	t := gf100.GraphTrap{
		Intr:       d.rd(regGraphIntr),
		Subchannel: uint8(addr >> 16 & 7),
		Method:     addr & 0x3ffc,
		Data:       d.rd(regGraphData),
		DataError:  d.rd(regGraphError),
	}
	t.Class = uint16(d.rd(regGraphClass + uint32(t.Subchannel)*4))
	if t.Intr&gf100.GraphIntrTrap != 0 {
		t.MP = d.programError()
	}
	if ch := d.failed(inst); ch != nil {
		fault := structs.ReadGraphTrap(t)
		if fault.Kind == card.ProgramError {
			fault.Text = d.ProgramReport(ch.id)
		}
		ch.ev.Fault(fault)
	}
	d.wr(regGraphTrap, ^uint32(0))
	d.wr(regGraphIntr, ^uint32(0))
	d.wr(regGraphFIFO, graphGoOn)
}

// programError reads which processors had errors, and lets them go on. It returns one of the errors.
func (d *Driver) programError() (e gf100.MPError) {
	gpcs := d.rd(regTrapGPCs)
	for g := range uint32(gf100.MaxGPCs) {
		if gpcs>>g&1 == 0 {
			continue
		}
		tpcs := d.rd(regGPCTrap + g*strideGPC)
		for t := range uint32(gf100.MaxTPCs) {
			mp := g*strideGPC + t*strideTPC
			if tpcs&(gf100.GPCTrapTPC<<t) == 0 || d.rd(regTPCTrap+mp)&gf100.TPCTrapMP == 0 {
				continue
			}
			e = gf100.MPError{Warp: d.rd(regWarpError + mp), Global: d.rd(regGlobalError + mp)}
			d.wr(regWarpError+mp, 0)
			d.wr(regGlobalError+mp, e.Global)
		}
		d.wr(regGPCTrap+g*strideGPC, tpcs)
	}
	d.wr(regTrapGPCs, gpcs)
	return e
}

// pollCopy is pollGraph for a copy engine, whose microcode leaves the refused method in its
// mailboxes.
func (d *Driver) pollCopy(e int) {
	ce := uint32(e) * strideCopy
	where := d.rd(regCopyMailbox + ce)
	inst := uint64(d.rd(regCopyContext+ce)&contextInst) << 12
	t := gf100.CopyTrap{
		Engine:     e,
		Subchannel: uint8(where >> 27 & 7),
		Method:     where >> 16 & 0x7ff << 2,
		Status:     where & 0xffff,
		Data:       d.rd(regCopyMailbox + ce + 4),
	}
	if ch := d.failed(inst); ch != nil {
		ch.ev.Fault(structs.ReadCopyTrap(t))
	}
	d.wr(regCopyClear+ce, ^uint32(0))
}

// Engines implements card.GPU.
func (d *Driver) Engines() int { return len(gf100.Executing) }

// Serving implements card.GPU.
func (d *Driver) Serving(e card.Engine) card.ChannelEvents {
	v := d.rd(regEngineStatus + uint32(structs.Number(e))*4)
	if v&gf100.EngineBusy == 0 {
		return nil
	}
	if ch := d.owner(v & (gf100.Channels - 1)); ch != nil {
		return ch.common().ev
	}
	return nil
}
