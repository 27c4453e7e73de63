package gf100

import "github.com/umbra-gpu/umbra/mmio/gf100"

// report shows an event in the registers.
func (v *VGPU) report(show func(f *fifo)) { v.Event(func() { show(&v.fifo) }) }

// EngineEvent reports non-stall events; bit n is engine n.
func (v *VGPU) EngineEvent(engines uint32) {
	v.report(func(f *fifo) { f.EngineEvents(engines) })
}

// MMUFault reports a fault of channel id.
func (v *VGPU) MMUFault(id uint8, x gf100.MMUFault) {
	v.report(func(f *fifo) { f.channelFault(id, x) })
}

// PBDMAError reports a method or header that no engine takes. The channel waits
// until the guest has acknowledged it.
func (v *VGPU) PBDMAError(e gf100.PBDMAError) {
	v.report(func(f *fifo) {
		f.forget(e.Channel)
		f.Errors = append(f.Errors, e)
		f.show()
	})
}

// GraphTrap reports a method of channel id that PGRAPH refused. The channel waits until the
// guest has resumed its PGRAPH.
func (v *VGPU) GraphTrap(id uint8, t gf100.GraphTrap) {
	v.refused(Refusal{Engine: gf100.EngineGR, Channel: id, Graph: t})
}

// CopyTrap reports a method of channel id that a copy engine refused. The channel
// waits until the guest has acknowledged it.
func (v *VGPU) CopyTrap(id uint8, t gf100.CopyTrap) {
	v.refused(Refusal{Engine: gf100.EngineCE0 + t.Engine, Channel: id, Copy: t})
}

func (v *VGPU) refused(r Refusal) {
	v.report(func(f *fifo) {
		f.forgetRefusals(r.Channel)
		f.Refusals = append(f.Refusals, r)
		f.showRefusal(v.face, r.Engine)
	})
}

// BindError reports a channel that could not be bound.
func (v *VGPU) BindError() { v.report(func(f *fifo) { f.BindError(gf100.BindInvalid) }) }

// RunlistError reports a runlist outside the guest's memory.
func (v *VGPU) RunlistError() { v.report(func(f *fifo) { f.SchedError(gf100.SchedRunlistData) }) }

// Done reports that control operations ended; runlist says that one was a
// runlist.
func (v *VGPU) Done(runlist bool) {
	if runlist {
		v.report(func(f *fifo) { f.RunlistDone() })
	}
}
