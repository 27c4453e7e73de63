package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
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

// faultUnit is an MMU client that faults are reported for: its slot at 002800,
// and the client number of its requests (bits 12:8 of 00280c).
type faultUnit struct {
	slot          uint8
	client        uint8
	writeClient   uint8 // BARs have another one for writes
	separateWrite bool
}

// Slots and clients: envytools rnndb/fifo/gf100_pfifo.xml (VM_FAULT).
var (
	unitGR   = faultUnit{slot: 0x00, client: 0x04}
	unitBAR1 = faultUnit{slot: 0x04, client: 0x07, writeClient: 0x08, separateWrite: true}
	unitBAR3 = faultUnit{slot: 0x05, client: 0x07, writeClient: 0x08, separateWrite: true}
	unitHost = faultUnit{slot: 0x07, client: 0x06}
	unitCE0  = faultUnit{slot: 0x15, client: 0x01}
	unitCE1  = faultUnit{slot: 0x16, client: 0x02}
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

// mmuFault reports a fault. A slot keeps its first fault until the driver frees
// it.
func (r *registers) mmuFault(u faultUnit, inst uint64, f engine.Fault) {
	if r.faultID.Get()>>u.slot&1 != 0 {
		return
	}
	info := uint32(f.Reason&0xf) | faultHub
	client := u.client
	if f.Write {
		info |= faultWrite
		if u.separateWrite {
			client = u.writeClient
		}
	}
	r.faultInst[u.slot].Put(uint32(inst >> 12))
	r.faultLo[u.slot].Put(uint32(f.VA))
	r.faultHi[u.slot].Put(uint32(f.VA >> 32))
	r.faultInfo[u.slot].Put(info | uint32(client)<<8)
	r.faultID.Set(1 << u.slot)
}
