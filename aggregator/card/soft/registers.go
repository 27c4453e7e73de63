package soft

import (
	"slices"

	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// registers are the cells of the register space that the card itself writes,
// and those it looks at between accesses. Guarded by Card.mu.
type registers struct {
	window                                 mmio.Cell
	intr, intrEn                           mmio.Cell
	pfifoEnable, schedDisable              mmio.Cell
	userdBase                              mmio.Cell
	runlistBase                            mmio.Cell
	faultID, engEventEn, runlistIntr       mmio.Cell
	engEvent                               [8]mmio.Cell
	faultInst, faultLo, faultHi, faultInfo [gf100.FaultUnits]mmio.Cell
	pbdma                                  [gf100.PBDMAs]pbdmaCells

	powerOn []resetCell
}

type pbdmaCells struct{ intr, intrEn, method, data, channel mmio.Cell }

func (r *registers) resolve(s *mmio.Space) {
	for _, c := range []struct {
		cell *mmio.Cell
		name string
	}{
		{&r.window, "NV_PBUS_BAR0_WINDOW"},
		{&r.intr, "NV_PFIFO_INTR_0"},
		{&r.intrEn, "NV_PFIFO_INTR_EN_0"},
		{&r.pfifoEnable, "NV_PFIFO_ENABLE"},
		{&r.schedDisable, "NV_PFIFO_SCHED_DISABLE"},
		{&r.userdBase, "NV_PFIFO_USERD_BASE"},
		{&r.runlistBase, "NV_PFIFO_RUNLIST_BASE"},
		{&r.faultID, "NV_PFIFO_INTR_MMU_FAULT_ID"},
		{&r.engEventEn, "NV_PFIFO_ENG_EVENT_EN"},
		{&r.runlistIntr, "NV_PFIFO_INTR_RUNLIST"},
	} {
		*c.cell = s.Cell(c.name, 0)
	}
	r.powerOn = fifoResets(s)
	for i := range r.engEvent {
		r.engEvent[i] = s.Cell("NV_PFIFO_ENG_EVENT_STATUS", i)
	}
	for i := range gf100.FaultUnits {
		r.faultInst[i] = s.Cell("NV_PFIFO_MMU_FAULT_INST", i)
		r.faultLo[i] = s.Cell("NV_PFIFO_MMU_FAULT_VA_LO", i)
		r.faultHi[i] = s.Cell("NV_PFIFO_MMU_FAULT_VA_HI", i)
		r.faultInfo[i] = s.Cell("NV_PFIFO_MMU_FAULT_INFO", i)
	}
	for i := range r.pbdma {
		r.pbdma[i] = pbdmaCells{
			intr:    s.Cell("NV_PPBDMA_INTR_0", i),
			intrEn:  s.Cell("NV_PPBDMA_INTR_EN_0", i),
			method:  s.Cell("NV_PPBDMA_METHOD0", i),
			data:    s.Cell("NV_PPBDMA_DATA0", i),
			channel: s.Cell("NV_PPBDMA_CHANNEL", i),
		}
	}
}

// pending returns NV_PFIFO_INTR_0 with the levels of its sub-registers.
func (r *registers) pending() uint32 {
	v := r.intr.Get()
	if r.faultID.Get() != 0 {
		v |= gf100.IntrMMUFault
	}
	if r.pbdmaPending() != 0 {
		v |= gf100.IntrPBDMA
	}
	if r.runlistIntr.Get() != 0 {
		v |= gf100.IntrRunlist
	}
	if r.enginesPending() != 0 {
		v |= gf100.IntrEngine
	}
	return v
}

func (r *registers) pfifoLevel() bool { return r.pending()&r.intrEn.Get() != 0 }

// pbdmaPending has a bit for each PBDMA with an enabled interrupt.
func (r *registers) pbdmaPending() (mask uint32) {
	for i, p := range r.pbdma {
		if p.intr.Get()&p.intrEn.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// enginesPending has a bit for each engine with an event.
func (r *registers) enginesPending() (mask uint32) {
	for i, e := range r.engEvent {
		if e.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// resetFIFO gives the rows of PFIFO their reset values, as switching the unit
// off does.
func (r *registers) resetFIFO() {
	for _, p := range r.powerOn {
		p.cell.Put(p.value)
	}
}

// resetCell is a register of PFIFO and its reset value.
type resetCell struct {
	cell  mmio.Cell
	value uint32
}

// fifoBlocks are the blocks that NV_PMC_ENABLE resets with PFIFO.
var fifoBlocks = []string{"PFIFO", "PCCSR", "PPBDMA"}

func fifoResets(s *mmio.Space) (cells []resetCell) {
	for _, b := range gf100.Blocks() {
		if !slices.Contains(fifoBlocks, b.Name) {
			continue
		}
		for _, reg := range b.Regs {
			n := 1
			for _, d := range reg.Rep {
				n *= d.Count
			}
			for i := range n {
				cells = append(cells, resetCell{s.Cell(reg.Name, i), reg.Reset})
			}
		}
	}
	return cells
}
