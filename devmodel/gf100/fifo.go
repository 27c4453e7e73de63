package gf100

import (
	"slices"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fifo is the guest's view of PFIFO besides its channels: interrupts, faults and PBDMA
// errors. Guarded by VGPU.Mu.
type fifo struct {
	gf100.FIFOReport

	window, userdBase, runlistBase mmio.Cell
	invalidatePDB                  mmio.Cell
	enable, schedDisable           mmio.Cell

	State
}

func (f *fifo) resolve(s *mmio.Space) {
	f.Attach(s)
	f.window = s.Cell("NV_PBUS_BAR0_WINDOW", 0)
	f.userdBase = s.Cell("NV_PFIFO_USERD_BASE", 0)
	f.runlistBase = s.Cell("NV_PFIFO_RUNLIST_BASE", 0)
	f.invalidatePDB = s.Cell("NV_PFB_PRI_MMU_INVALIDATE_PDB", 0)
	f.enable = s.Cell("NV_PFIFO_ENABLE", 0)
	f.schedDisable = s.Cell("NV_PFIFO_SCHED_DISABLE", 0)
}

// channelFault shows a channel's fault as soon as its slot is free: the driver must get a
// report of every channel that stopped.
func (f *fifo) channelFault(id uint8, x gf100.MMUFault) {
	f.Faults = slices.DeleteFunc(f.Faults, func(c ChannelFault) bool { return c.Channel == id })
	f.Faults = append(f.Faults, ChannelFault{id, x})
	f.showFaults()
}

func (f *fifo) showFaults() {
	f.Faults = slices.DeleteFunc(f.Faults, func(c ChannelFault) bool { return f.Fault(c.MMUFault) })
}

// show assigns waiting errors to free PBDMAs: the one on which the error happened if it is
// free, else any.
func (f *fifo) show() {
	for len(f.Errors) > 0 {
		e := f.Errors[0]
		i := f.freePBDMA(int(e.PBDMA))
		if i < 0 {
			return
		}
		f.Errors = f.Errors[1:]
		e.PBDMA = uint8(i)
		f.ShownErrors[i] = ShownError{Valid: true, PBDMAError: e}
		f.Hold(e)
	}
}

func (f *fifo) freePBDMA(first int) int {
	for n := range gf100.PBDMAs {
		if i := (first + n) % gf100.PBDMAs; !f.ShownErrors[i].Valid && f.PBDMA[i].Intr.Get() == 0 {
			return i
		}
	}
	return -1
}

// poll reports whether an access of n bytes at off of BAR1 hits the poll area, which
// channel's page it hits, and whether it touches GP_PUT.
func (f *fifo) poll(off uint64, n int) (id uint8, doorbell, hit bool) {
	base := gf100.PollArea(f.userdBase.Get())
	if off < base || off >= base+gf100.Channels*gf100.USERDSize {
		return 0, false, false
	}
	in := (off - base) % gf100.USERDSize
	return uint8((off - base) / gf100.USERDSize), in <= gf100.USERDGPPut+3 && in+uint64(n) > gf100.USERDGPPut, true
}

// bindFIFO binds the rows of PFIFO, PCCSR and PPBDMA.
func (v *VGPU) bindFIFO(b *mmio.Bindings) {
	f := &v.fifo
	f.Bind(b)
	b.OnWrite("NV_PFIFO_ENABLE", func(int, mmio.Write) { v.schedule() })
	b.OnWrite("NV_PFIFO_USERD_BASE", func(_ int, w mmio.Write) { v.card.Set(PollBase, w.New) })
	b.OnWrite("NV_PFIFO_RUNLIST", func(_ int, w mmio.Write) { v.card.Runlist(f.runlistBase.Get(), w.New) })
	b.OnRead("NV_PFIFO_ENG_RUNLIST", func(_ int, r uint32) uint32 { return flag(r, gf100.RunlistPending, v.card.Pending().Runlist) })
	b.OnWrite("NV_PFIFO_INTR_MMU_FAULT_ID", func(int, mmio.Write) { f.showFaults() })
	b.OnWrite("NV_PFIFO_SCHED_DISABLE", func(int, mmio.Write) { v.schedule() })
	b.On("NV_PFIFO_PREEMPT", mmio.Hooks{
		Read:  func(_ int, r uint32) uint32 { return flag(r, gf100.PreemptPending, v.card.Pending().Preempt) },
		Write: func(_ int, w mmio.Write) { v.card.Channel(uint8(w.New%gf100.Channels), Preempt, 0) },
	})
	b.OnRead("NV_PFIFO_ENGINE_STATUS", func(i int, _ uint32) uint32 { return v.card.EngineStatus(i) })
	b.OnWrite("NV_PFIFO_MMU_FAULT_TRIGGER", func(i int, w mmio.Write) {
		if w.Data&gf100.FaultTrigger != 0 {
			v.card.EndEngine(i)
		}
	})
	b.OnWrite("NV_PCCSR_CHANNEL_INST", func(i int, w mmio.Write) { v.bind(uint8(i), w.New) })
	b.On("NV_PCCSR_CHANNEL", mmio.Hooks{
		Read:  func(i int, r uint32) uint32 { return flag(r, gf100.ChannelBusy, v.card.Busy(uint8(i))) },
		Write: func(i int, w mmio.Write) { v.card.Channel(uint8(i), Enable, w.New) },
	})
	b.OnWrite("NV_PPBDMA_METHOD0", func(i int, w mmio.Write) { f.ShownErrors[i].Skip = w.New&gf100.PBDMAMethodSkip != 0 })
	b.OnWrite("NV_PPBDMA_INTR_0", func(i int, w mmio.Write) { v.acknowledged(i) })
}

// schedule passes on whether PFIFO lets the guest's channels run.
func (v *VGPU) schedule() {
	f := &v.fifo
	on := f.enable.Get()&gf100.FIFOEnabled != 0 && f.schedDisable.Get()&gf100.SchedRunlist == 0
	v.card.Set(MayRun, flag(0, 1, on))
}

// bind acts on a write of NV_PCCSR_CHANNEL_INST. The channel's errors are dropped.
func (v *VGPU) bind(id uint8, inst uint32) {
	v.fifo.forget(id)
	v.fifo.forgetRefusals(id)
	v.card.Channel(id, Bind, inst)
}

// unitsReset acts on units that NV_PMC_ENABLE switched off. Engines drop the refused method
// that they show; PFIFO drops all its channels.
func (v *VGPU) unitsReset(bits uint32) {
	for e, bit := range gf100.EngineEnable {
		if bits&bit != 0 {
			v.resumeEngine(e)
		}
	}
	if bits&gf100.EnablePFIFO == 0 {
		return
	}
	for id := range uint8(gf100.Channels) {
		v.bind(id, 0)
		v.card.Channel(id, Enable, 0)
	}
	v.fifo.State = State{}
	v.fifo.Reset()
	v.schedule()
}

// flag returns v with the bits of mask set or cleared.
func flag(v, mask uint32, on bool) uint32 {
	if on {
		return v | mask
	}
	return v &^ mask
}

// acknowledged resumes the channel whose error the guest has acknowledged: after the method
// if the guest skipped it, else with it. If the channel was bound again since, only the
// PBDMA is freed.
func (v *VGPU) acknowledged(i int) {
	f := &v.fifo
	if f.PBDMA[i].Intr.Get() != 0 {
		return
	}
	s := f.ShownErrors[i]
	f.ShownErrors[i] = ShownError{}
	switch {
	case !s.Valid:
	case !s.Skip && s.Intr&^gf100.PBDMAIntrMethods == 0:
		v.card.Channel(s.Channel, Retry, 0)
	default:
		v.card.Channel(s.Channel, Resume, 0)
	}
	f.show()
}

// forget drops the errors of a channel that is bound again.
func (f *fifo) forget(id uint8) {
	for i := range f.ShownErrors {
		if f.ShownErrors[i].Channel == id {
			f.ShownErrors[i].Valid = false
		}
	}
	f.Errors = slices.DeleteFunc(f.Errors, func(e gf100.PBDMAError) bool { return e.Channel == id })
	f.Faults = slices.DeleteFunc(f.Faults, func(c ChannelFault) bool { return c.Channel == id })
}

// bindMMU binds the rows of PMMU and the PRAMIN window.
func (v *VGPU) bindMMU(b *mmio.Bindings) {
	f := &v.fifo
	b.OnWrite("NV_PBUS_BAR0_WINDOW", func(_ int, w mmio.Write) { v.card.Set(PRAMINBase, w.New) })
	b.OnWrite("NV_PBUS_BAR1_BLOCK", func(_ int, w mmio.Write) { v.card.Set(BAR1Block, w.New) })
	b.OnWrite("NV_PBUS_BAR2_BLOCK", func(_ int, w mmio.Write) { v.card.Set(BAR3Block, w.New) })
	// Host writes are complete when the next access is served, unless mapped windows are
	// not up to date yet.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, r uint32) uint32 { return flag(r&^3, gf100.FlushBusy, !v.card.Shown()) })
	b.OnRead("NV_PFB_PRI_MMU_CTRL", func(_ int, r uint32) uint32 { return flag(r, 1<<15, !v.card.Pending().Invalidate) })
	b.OnWrite("NV_PFB_PRI_MMU_INVALIDATE", func(_ int, w mmio.Write) { v.card.Invalidate(f.invalidatePDB.Get(), w.New) })
	b.OnWindow("PRAMIN", mmio.Window{
		Read:  func(off uint32, p []byte) { v.card.Read(PRAMIN, uint64(off), p) },
		Write: func(off uint32, p []byte) { v.card.Write(PRAMIN, uint64(off), p) },
	})
}
