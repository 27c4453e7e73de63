package devmodel

import "github.com/umbra-gpu/umbra/mmio/gf100"

// EngineEvent reports non-stall events; bit n is engine n.
func (v *VGPU) EngineEvent(engines uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.EngineEvents(engines)
	v.settle()
}

// MMUFault reports a fault of channel id.
func (v *VGPU) MMUFault(id uint8, x gf100.MMUFault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.channelFault(id, x)
	v.settle()
}

// PBDMAError reports a method or header that no engine takes. The channel waits
// until the guest has acknowledged it.
func (v *VGPU) PBDMAError(e gf100.PBDMAError) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.forget(e.Channel)
	v.fifo.Errors = append(v.fifo.Errors, e)
	v.fifo.show()
	v.settle()
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

// BindError reports a channel that could not be bound.
func (v *VGPU) BindError() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.BindError(gf100.BindInvalid)
	v.settle()
}

// RunlistError reports a runlist outside the guest's memory.
func (v *VGPU) RunlistError() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.SchedError(gf100.SchedRunlistData)
	v.settle()
}

func (v *VGPU) refused(r Refusal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.forgetRefusals(r.Channel)
	v.fifo.Refusals = append(v.fifo.Refusals, r)
	v.fifo.showRefusal(v.face, r.Engine)
	v.settle()
}

// Done reports that control operations ended; runlist says that one was a
// runlist.
func (v *VGPU) Done(runlist bool) {
	if !runlist {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fifo.RunlistDone()
	v.settle()
}
