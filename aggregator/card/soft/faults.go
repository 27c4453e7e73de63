package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// faultUnit is an MMU client that faults are reported for: its slot at 002800,
// and the client number of its requests (bits 12:8 of 00280c).
type faultUnit struct {
	slot        uint8
	client      uint8
	writeClient uint8 // BARs have another one for writes
}

// Slots and clients: envytools rnndb/fifo/gf100_pfifo.xml (VM_FAULT).
var (
	unitGR   = faultUnit{slot: 0x00, client: 0x04, writeClient: 0x04}
	unitBAR1 = faultUnit{slot: 0x04, client: 0x07, writeClient: 0x08}
	unitBAR3 = faultUnit{slot: 0x05, client: 0x07, writeClient: 0x08}
	unitHost = faultUnit{slot: 0x07, client: 0x06, writeClient: 0x06}
	unitCE0  = faultUnit{slot: 0x15, client: 0x01, writeClient: 0x01}
	unitCE1  = faultUnit{slot: 0x16, client: 0x02, writeClient: 0x02}
)

// engineFaults gives the unit of each engine that executes here.
var engineFaults = [gf100.Engines]faultUnit{
	gf100.EngineGR:  unitGR,
	gf100.EngineCE0: unitCE0,
	gf100.EngineCE1: unitCE1,
}

const (
	faultWrite = 1 << 7
	faultHub   = 1 << 6
)

// mmuFault reports a fault. A slot holds one until the driver frees it; false
// says that it holds another.
func (r *registers) mmuFault(u faultUnit, inst uint64, f engine.Fault) bool {
	info := uint32(f.Reason&0xf) | faultHub | uint32(u.client)<<8
	if f.Write {
		info = uint32(f.Reason&0xf) | faultHub | uint32(u.writeClient)<<8 | faultWrite
	}
	return r.Fault(gf100.MMUFault{Unit: u.slot, Inst: inst, VA: f.VA, Info: info})
}

// fault reports the fault of a channel: now, or when its slot is free. A
// channel's fault is never lost, for it stands still until the driver acts.
func (f *fifo) fault(ch *channel, u faultUnit, ft engine.Fault) {
	f.card.stats.MMUFaults.Add(1)
	ch.report = report{unit: u, fault: ft, due: !f.card.regs.mmuFault(u, ch.inst, ft)}
}

// reportFaults reports what waited for a slot.
func (f *fifo) reportFaults() {
	for i := range f.slots {
		ch := f.slots[i].ch
		if ch == nil || !ch.report.due {
			continue
		}
		ch.report.due = !f.card.regs.mmuFault(ch.report.unit, ch.inst, ch.report.fault)
	}
}

// triggerFault makes the channel that an engine served last fault, as a driver
// does to one that does not leave. Without such a channel nothing happens.
func (f *fifo) triggerFault(e uint8) {
	user := f.card.engines[e].last.Load()
	if user == 0 {
		return
	}
	s := &f.slots[user-1]
	switch ch := s.ch; {
	case ch == nil || ch.state == stateFaulted:
	case ch.state == stateRunning:
		ch.kick.Store(int32(e) + 1)
		ch.yield.Store(true)
	default:
		if ch.state == stateHeld {
			f.busy[ch.holder].release()
			f.freed.Broadcast()
		}
		f.suspend(s)
		f.kill(ch, e)
	}
}

// kill ends a channel that does not run with a fault of engine e.
func (f *fifo) kill(ch *channel, e uint8) {
	ch.state = stateFaulted
	f.fault(ch, engineFaults[e], engine.Fault{Reason: uint8(shadowpt.PageNotPresent)})
	f.card.settle()
}
