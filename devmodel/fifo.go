package devmodel

import (
	"slices"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fifo is what a guest sees of PFIFO beside its channels: interrupts, faults and
// the errors of PBDMAs. Guarded by VGPU.mu.
type fifo struct {
	window, userdBase, runlistBase mmio.Cell
	invalidatePDB                  mmio.Cell
	intr, intrEn                   mmio.Cell
	faultID, runlistIntr           mmio.Cell

	engEvent  [8]mmio.Cell
	fault     [gf100.FaultUnits]faultCells
	pbdma     [gf100.PBDMAs]pbdmaCells
	shown     [gf100.PBDMAs]errorShown
	errorList []gf100.PBDMAError // that no PBDMA shows yet; at most one a channel
	faultList []channelFault     // whose slot is taken; at most one a channel

	powerOn []resetCell
}

type channelFault struct {
	channel uint8
	gf100.MMUFault
}

// resetCell is a register of PFIFO and its reset value.
type resetCell struct {
	cell  mmio.Cell
	value uint32
}

// fifoBlocks are the blocks that NV_PMC_ENABLE resets with PFIFO.
var fifoBlocks = []string{"PFIFO", "PCCSR", "PPBDMA"}

type faultCells struct{ inst, lo, hi, info mmio.Cell }

type pbdmaCells struct{ intr, intrEn, method, data, channel mmio.Cell }

// errorShown is the channel whose error a PBDMA shows.
type errorShown struct {
	valid   bool
	channel uint8
}

func (f *fifo) resolve(s *mmio.Space) {
	for _, c := range []struct {
		cell *mmio.Cell
		name string
	}{
		{&f.window, "NV_PBUS_BAR0_WINDOW"},
		{&f.userdBase, "NV_PFIFO_USERD_BASE"},
		{&f.runlistBase, "NV_PFIFO_RUNLIST_BASE"},
		{&f.invalidatePDB, "NV_PFB_PRI_MMU_INVALIDATE_PDB"},
		{&f.intr, "NV_PFIFO_INTR_0"},
		{&f.intrEn, "NV_PFIFO_INTR_EN_0"},
		{&f.faultID, "NV_PFIFO_INTR_MMU_FAULT_ID"},
		{&f.runlistIntr, "NV_PFIFO_INTR_RUNLIST"},
	} {
		*c.cell = s.Cell(c.name, 0)
	}
	for i := range f.engEvent {
		f.engEvent[i] = s.Cell("NV_PFIFO_ENG_EVENT_STATUS", i)
	}
	for i := range f.fault {
		f.fault[i] = faultCells{
			inst: s.Cell("NV_PFIFO_MMU_FAULT_INST", i), lo: s.Cell("NV_PFIFO_MMU_FAULT_VA_LO", i),
			hi: s.Cell("NV_PFIFO_MMU_FAULT_VA_HI", i), info: s.Cell("NV_PFIFO_MMU_FAULT_INFO", i),
		}
	}
	for i := range f.pbdma {
		f.pbdma[i] = pbdmaCells{
			intr: s.Cell("NV_PPBDMA_INTR_0", i), intrEn: s.Cell("NV_PPBDMA_INTR_EN_0", i),
			method: s.Cell("NV_PPBDMA_METHOD0", i), data: s.Cell("NV_PPBDMA_DATA0", i),
			channel: s.Cell("NV_PPBDMA_CHANNEL", i),
		}
	}
	for _, b := range gf100.Blocks() {
		if slices.Contains(fifoBlocks, b.Name) {
			f.resolveResets(s, b)
		}
	}
}

func (f *fifo) resolveResets(s *mmio.Space, b mmio.Block) {
	for _, reg := range b.Regs {
		n := 1
		for _, d := range reg.Rep {
			n *= d.Count
		}
		for i := range n {
			f.powerOn = append(f.powerOn, resetCell{s.Cell(reg.Name, i), reg.Reset})
		}
	}
}

func (f *fifo) reset() {
	f.shown = [gf100.PBDMAs]errorShown{}
	f.errorList, f.faultList = nil, nil
}

// pending returns NV_PFIFO_INTR_0 with the levels of its sub-registers.
func (f *fifo) pending() uint32 {
	v := f.intr.Get()
	for _, l := range []struct {
		on  bool
		bit uint32
	}{
		{f.faultID.Get() != 0, gf100.IntrMMUFault},
		{f.pbdmaPending() != 0, gf100.IntrPBDMA},
		{f.runlistIntr.Get() != 0, gf100.IntrRunlist},
		{f.enginesPending() != 0, gf100.IntrEngine},
	} {
		if l.on {
			v |= l.bit
		}
	}
	return v
}

func (f *fifo) level() bool { return f.pending()&f.intrEn.Get() != 0 }

func (f *fifo) pbdmaPending() (mask uint32) {
	for i, p := range f.pbdma {
		if p.intr.Get()&p.intrEn.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

func (f *fifo) enginesPending() (mask uint32) {
	for i, e := range f.engEvent {
		if e.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// mmuFault shows a fault. A slot keeps its first one until the guest frees it;
// false says that it holds another.
func (f *fifo) mmuFault(x gf100.MMUFault) bool {
	c := &f.fault[x.Unit%gf100.FaultUnits]
	if f.faultID.Get()>>x.Unit&1 != 0 {
		return false
	}
	c.inst.Put(uint32(x.Inst >> 12))
	c.lo.Put(uint32(x.VA))
	c.hi.Put(uint32(x.VA >> 32))
	c.info.Put(x.Info)
	f.faultID.Set(1 << x.Unit)
	return true
}

// channelFault shows a channel's fault, when its slot is free: a channel that
// stands still must not be one that its driver never hears of.
func (f *fifo) channelFault(id uint8, x gf100.MMUFault) {
	f.faultList = slices.DeleteFunc(f.faultList, func(c channelFault) bool { return c.channel == id })
	f.faultList = append(f.faultList, channelFault{id, x})
	f.showFaults()
}

func (f *fifo) showFaults() {
	f.faultList = slices.DeleteFunc(f.faultList, func(c channelFault) bool { return f.mmuFault(c.MMUFault) })
}

// show lets PBDMAs that show nothing show the next errors: the one the error
// happened on if it is free, else any.
func (f *fifo) show() {
	for len(f.errorList) > 0 {
		e := f.errorList[0]
		i := f.freePBDMA(int(e.PBDMA))
		if i < 0 {
			return
		}
		f.errorList = f.errorList[1:]
		f.shown[i] = errorShown{valid: true, channel: e.Channel}
		p := &f.pbdma[i]
		p.channel.Put(uint32(e.Channel))
		p.method.Put(e.Method)
		p.data.Put(e.Data)
		p.intr.Set(e.Intr)
	}
}

func (f *fifo) freePBDMA(first int) int {
	for n := range gf100.PBDMAs {
		if i := (first + n) % gf100.PBDMAs; !f.shown[i].valid {
			return i
		}
	}
	return -1
}

// poll looks whether an access of n bytes at off of BAR1 touches the poll area:
// which channel's page, and whether its GP_PUT.
func (f *fifo) poll(off uint64, n int) (id uint8, bell, hit bool) {
	base := uint64(f.userdBase.Get()&(1<<28-1)) << 12
	if off < base || off >= base+gf100.Channels*gf100.USERDSize {
		return 0, false, false
	}
	in := (off - base) % gf100.USERDSize
	return uint8((off - base) / gf100.USERDSize), in <= gf100.USERDGPPut+3 && in+uint64(n) > gf100.USERDGPPut, true
}

const pending20 = 1 << 20 // "pending" of the preempt and runlist registers

// bindFIFO binds the rows of PFIFO, PCCSR and PPBDMA.
func (v *VGPU) bindFIFO(b *mmio.Bindings) {
	f := &v.fifo
	nothing := func(int, mmio.Write) {}
	b.OnRead("NV_PFIFO_INTR_0", func(int, uint32) uint32 { return f.pending() })
	b.OnWrite("NV_PFIFO_INTR_EN_0", nothing)
	b.OnWrite("NV_PFIFO_ENABLE", nothing)
	b.OnWrite("NV_PFIFO_USERD_BASE", nothing)
	b.OnWrite("NV_PFIFO_RUNLIST", func(_ int, w mmio.Write) { v.card.Runlist(f.runlistBase.Get(), w.New) })
	b.OnRead("NV_PFIFO_ENG_RUNLIST", func(_ int, r uint32) uint32 { return flag(r, pending20, v.card.RunlistPending()) })
	b.OnWrite("NV_PFIFO_INTR_MMU_FAULT_ID", func(int, mmio.Write) { f.showFaults() })
	b.OnRead("NV_PFIFO_INTR_PBDMA_ID", func(int, uint32) uint32 { return f.pbdmaPending() })
	b.OnRead("NV_PFIFO_ENG_EVENT", func(int, uint32) uint32 { return f.enginesPending() })
	b.OnWrite("NV_PFIFO_ENG_EVENT_STATUS", nothing)
	b.OnWrite("NV_PFIFO_ERROR_CLEAR", nothing)
	b.OnWrite("NV_PFIFO_SCHED_DISABLE", nothing)
	b.On("NV_PFIFO_PREEMPT", mmio.Hooks{
		Read:  func(_ int, r uint32) uint32 { return flag(r, pending20, v.card.PreemptPending()) },
		Write: func(_ int, w mmio.Write) { v.card.Preempt(uint8(w.New % gf100.Channels)) },
	})
	b.OnRead("NV_PFIFO_ENGINE_STATUS", func(i int, _ uint32) uint32 { return v.card.EngineStatus(i) })
	b.OnWrite("NV_PFIFO_INTR_RUNLIST", nothing)
	b.OnWrite("NV_PFIFO_MMU_FAULT_TRIGGER", nothing)
	b.OnWrite("NV_PCCSR_CHANNEL_INST", func(i int, w mmio.Write) {
		v.bind(uint8(i), w.New)
	})
	b.On("NV_PCCSR_CHANNEL", mmio.Hooks{
		Read:  func(i int, r uint32) uint32 { return flag(r, 1<<28, v.card.ChannelBusy(uint8(i))) },
		Write: func(i int, w mmio.Write) { v.card.Enable(uint8(i), w.New&1 != 0) },
	})
	b.OnWrite("NV_PPBDMA_METHOD0", nothing)
	b.OnWrite("NV_PPBDMA_INTR_0", func(i int, w mmio.Write) { v.acknowledged(i) })
	b.OnWrite("NV_PPBDMA_INTR_EN_0", nothing)
}

// bind acts on a write of NV_PCCSR_CHANNEL_INST: with the channel go its errors.
func (v *VGPU) bind(id uint8, inst uint32) {
	v.fifo.forget(id)
	v.refusals.forget(id)
	v.card.Bind(id, inst)
}

// unitsReset acts on units that NV_PMC_ENABLE switched off. Engines lose what
// they were stopped at; PFIFO loses all its channels.
func (v *VGPU) unitsReset(bits uint32) {
	for e, bit := range gf100.EngineEnable {
		if bits&bit != 0 {
			v.goOn(e)
		}
	}
	if bits&gf100.EnablePFIFO == 0 {
		return
	}
	for id := range uint8(gf100.Channels) {
		v.bind(id, 0)
		v.card.Enable(id, false)
	}
	v.fifo.reset()
	for _, p := range v.fifo.powerOn {
		p.cell.Put(p.value)
	}
}

// flag returns v with the bits of mask set or cleared.
func flag(v, mask uint32, on bool) uint32 {
	if on {
		return v | mask
	}
	return v &^ mask
}

// acknowledged lets the channel go on whose error the guest has acknowledged.
func (v *VGPU) acknowledged(i int) {
	f := &v.fifo
	if s := f.shown[i]; s.valid && f.pbdma[i].intr.Get() == 0 {
		f.shown[i] = errorShown{}
		v.card.Resume(s.channel)
		f.show()
	}
}

// forget drops errors of a channel that is bound anew.
func (f *fifo) forget(id uint8) {
	for i := range f.shown {
		if f.shown[i].channel == id {
			f.shown[i].valid = false
		}
	}
	f.errorList = slices.DeleteFunc(f.errorList, func(e gf100.PBDMAError) bool { return e.Channel == id })
	f.faultList = slices.DeleteFunc(f.faultList, func(c channelFault) bool { return c.channel == id })
}

// bindMMU binds the rows of PMMU and the PRAMIN window.
func (v *VGPU) bindMMU(b *mmio.Bindings) {
	f := &v.fifo
	b.OnWrite("NV_PBUS_BAR0_WINDOW", func(int, mmio.Write) {})
	b.OnWrite("NV_PBUS_BAR1_BLOCK", func(_ int, w mmio.Write) { v.card.SetBlock(BAR1, w.New) })
	b.OnWrite("NV_PBUS_BAR2_BLOCK", func(_ int, w mmio.Write) { v.card.SetBlock(BAR3, w.New) })
	// Host writes have landed when the next access is served.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, r uint32) uint32 { return r &^ 3 })
	b.OnRead("NV_PFB_PRI_MMU_CTRL", func(_ int, r uint32) uint32 { return flag(r, 1<<15, v.card.Invalidated()) })
	b.OnWrite("NV_PFB_PRI_MMU_INVALIDATE", func(_ int, w mmio.Write) { v.card.Invalidate(f.invalidatePDB.Get(), w.New) })
	b.OnWindow("PRAMIN", mmio.Window{
		Read:  func(off uint32, p []byte) { v.card.ReadPRAMIN(f.window.Get(), off, p) },
		Write: func(off uint32, p []byte) { v.card.WritePRAMIN(f.window.Get(), off, p) },
	})
}
