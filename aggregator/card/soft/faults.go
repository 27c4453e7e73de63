package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// faultUnit is the unit that a fault is reported for.
type faultUnit = gf100.MMUClient

// mmuFault reports a fault. A slot holds one until the driver frees it; false means that it
// holds another.
func (r *registers) mmuFault(u faultUnit, inst uint64, f engine.Fault) bool {
	return r.Fault(u.Fault(inst, f.VA, f.Write, f.Reason))
}

// fault reports the fault of a channel: now, or when its slot is free. No fault is lost,
// because a faulted channel stays stopped until the driver acts.
func (f *fifo) fault(ch *channel, u faultUnit, ft engine.Fault) {
	f.card.stats.MMUFaults.Add(1)
	ch.Report = report{Unit: u, Fault: ft, Due: !f.card.regs.mmuFault(u, ch.Inst, ft)}
}

// reportFaults reports what waited for a slot.
func (f *fifo) reportFaults() {
	for i := range f.channels {
		ch := f.channels[i]
		if ch == nil || !ch.Report.Due {
			continue
		}
		ch.Report.Due = !f.card.regs.mmuFault(ch.Report.Unit, ch.Inst, ch.Report.Fault)
	}
}

// triggerFault makes the channel that an engine served last fault, as a driver
// does to one that does not leave. Without such a channel nothing happens.
func (f *fifo) triggerFault(e uint8) {
	ch := f.card.engines[e].last.Load()
	if ch == nil || ch.dead.Load() || ch.direct != nil {
		return
	}
	switch {
	case ch.State == stateFaulted:
	case ch.State == stateRunning:
		ch.Kick = e + 1
		ch.yield.Store(true)
	default:
		if ch.State == stateHeld {
			f.busy[ch.Holder].release()
			f.freed.Broadcast()
		}
		f.suspend(ch)
		f.kill(ch, e)
	}
}

// kill ends a channel that does not run with a fault of engine e.
func (f *fifo) kill(ch *channel, e uint8) {
	ch.State, ch.programReport = stateFaulted, ""
	f.fault(ch, gf100.EngineClients[e], engine.Fault{Reason: uint8(shadowpt.PageNotPresent)})
	f.card.settle()
}
