package gf100

import "github.com/umbra-gpu/umbra/mmio"

// FIFOReport is what PFIFO and its PBDMAs report to a driver: the interrupt registers, the
// fault slots, the held methods. The owner of PFIFO (a card, a virtual GPU) enters its
// reports here, and the registers follow.
type FIFOReport struct {
	// PBDMA are the cells of each pushbuffer reader.
	PBDMA [PBDMAs]PBDMACells

	intr, intrEn mmio.Cell
	bindError    mmio.Cell
	schedError   mmio.Cell
	faultID      mmio.Cell
	runlistIntr  mmio.Cell
	engEvent     [engEvents]mmio.Cell
	faults       [FaultUnits]faultCells
	space        *mmio.Space
}

// PBDMACells are the registers of one pushbuffer reader.
type PBDMACells struct{ Intr, IntrEn, Method, Data, Channel mmio.Cell }

type faultCells struct{ inst, lo, hi, info mmio.Cell }

// fifoBlocks are the blocks that NV_PMC_ENABLE resets with PFIFO.
var fifoBlocks = []string{pfifo.Name, pccsr.Name, ppbdma.Name}

const (
	runlistDone = 1 << 28 // in NV_PFIFO_INTR_RUNLIST
	engineEvent = 1 << 0  // in NV_PFIFO_ENG_EVENT_STATUS
)

// Bind binds the rows that show reports. Acknowledging a fault slot or a PBDMA
// has consequences for channels, so those rows are the owner's to bind.
func (r *FIFOReport) Bind(b *mmio.Bindings) {
	settle := func(int, mmio.Write) {} // the owner recomputes the tree after each access
	b.OnRead("NV_PFIFO_INTR_0", func(int, uint32) uint32 { return r.pending() })
	b.OnWrite("NV_PFIFO_INTR_EN_0", settle)
	b.OnRead("NV_PFIFO_INTR_PBDMA_ID", func(int, uint32) uint32 { return r.pbdmasPending() })
	b.OnRead("NV_PFIFO_ENG_EVENT", func(int, uint32) uint32 { return r.enginesPending() })
	b.OnWrite("NV_PFIFO_ENG_EVENT_STATUS", settle)
	b.OnWrite("NV_PFIFO_INTR_RUNLIST", settle)
	b.OnWrite("NV_PPBDMA_INTR_EN_0", settle)
}

// Attach resolves the registers of the built space.
func (r *FIFOReport) Attach(s *mmio.Space) {
	r.space = s
	r.intr, r.intrEn = s.Cell("NV_PFIFO_INTR_0", 0), s.Cell("NV_PFIFO_INTR_EN_0", 0)
	r.bindError = s.Cell("NV_PFIFO_INTR_BIND_ERROR", 0)
	r.schedError = s.Cell("NV_PFIFO_INTR_SCHED_ERROR", 0)
	r.faultID = s.Cell("NV_PFIFO_INTR_MMU_FAULT_ID", 0)
	r.runlistIntr = s.Cell("NV_PFIFO_INTR_RUNLIST", 0)
	for i := range r.engEvent {
		r.engEvent[i] = s.Cell("NV_PFIFO_ENG_EVENT_STATUS", i)
	}
	for i := range r.faults {
		r.faults[i] = faultCells{
			inst: s.Cell("NV_PFIFO_MMU_FAULT_INST", i), lo: s.Cell("NV_PFIFO_MMU_FAULT_VA_LO", i),
			hi: s.Cell("NV_PFIFO_MMU_FAULT_VA_HI", i), info: s.Cell("NV_PFIFO_MMU_FAULT_INFO", i),
		}
	}
	for i := range r.PBDMA {
		r.PBDMA[i] = PBDMACells{
			Intr: s.Cell("NV_PPBDMA_INTR_0", i), IntrEn: s.Cell("NV_PPBDMA_INTR_EN_0", i),
			Method: s.Cell("NV_PPBDMA_METHOD0", i), Data: s.Cell("NV_PPBDMA_DATA0", i),
			Channel: s.Cell("NV_PPBDMA_CHANNEL", i),
		}
	}
}

// Reset gives the rows of PFIFO, PCCSR and PPBDMA their reset values, as
// switching the unit off does.
func (r *FIFOReport) Reset() {
	for _, name := range fifoBlocks {
		r.space.ResetBlock(name)
	}
}

// Level reports whether PFIFO asks for an interrupt.
func (r *FIFOReport) Level() bool { return r.pending()&r.intrEn.Get() != 0 }

func (r *FIFOReport) pending() uint32 {
	v := r.intr.Get()
	if r.faultID.Get() != 0 {
		v |= IntrMMUFault
	}
	if r.pbdmasPending() != 0 {
		v |= IntrPBDMA
	}
	if r.runlistIntr.Get() != 0 {
		v |= IntrRunlist
	}
	if r.enginesPending() != 0 {
		v |= IntrEngine
	}
	return v
}

func (r *FIFOReport) pbdmasPending() (mask uint32) {
	for i, p := range r.PBDMA {
		if p.Intr.Get()&p.IntrEn.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

func (r *FIFOReport) enginesPending() (mask uint32) {
	for i, e := range r.engEvent {
		if e.Get() != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// EngineEvents reports non-stall events; bit n is engine n.
func (r *FIFOReport) EngineEvents(engines uint32) {
	for i := range r.engEvent {
		if engines>>i&1 != 0 {
			r.engEvent[i].Set(engineEvent)
		}
	}
}

// RunlistDone reports that a runlist update is complete.
func (r *FIFOReport) RunlistDone() { r.runlistIntr.Set(runlistDone) }

// BindError reports a channel that could not be bound.
func (r *FIFOReport) BindError(code uint32) {
	r.bindError.Put(code)
	r.intr.Set(IntrBind)
}

// SchedError reports a runlist that could not be taken.
func (r *FIFOReport) SchedError(code uint32) {
	r.schedError.Put(code)
	r.intr.Set(IntrSched)
}

// Fault reports an MMU fault. A slot holds one until the driver frees it; false means that
// it holds another, or that there is no such slot.
func (r *FIFOReport) Fault(f MMUFault) bool {
	if f.Unit >= FaultUnits || r.faultID.Get()>>f.Unit&1 != 0 {
		return false
	}
	c := &r.faults[f.Unit]
	c.inst.Put(uint32(f.Inst >> 12))
	c.lo.Put(uint32(f.VA))
	c.hi.Put(uint32(f.VA >> 32))
	c.info.Put(f.Info)
	r.faultID.Set(1 << f.Unit)
	return true
}

// Hold shows a method or header that a PBDMA could not pass on, and raises its
// interrupt.
func (r *FIFOReport) Hold(e PBDMAError) {
	p := &r.PBDMA[e.PBDMA%PBDMAs]
	p.Channel.Put(uint32(e.Channel))
	p.Method.Put(e.Method)
	p.Data.Put(e.Data)
	p.Intr.Set(e.Intr)
}

// MMUFault is a fault as the registers at 002800 describe it.
type MMUFault struct {
	Unit uint8  // slot: which client of the MMU
	Inst uint64 // instance block, in bytes
	VA   uint64
	Info uint32 // NV_PFIFO_MMU_FAULT_INFO
}

// Reason returns why the access was not possible.
func (f MMUFault) Reason() uint8 { return uint8(f.Info & 0xf) }

// GPC reports whether the client is in a GPC.
func (f MMUFault) GPC() bool { return f.Info&faultHub == 0 }

// Write reports whether the access was a write.
func (f MMUFault) Write() bool { return f.Info&faultWrite != 0 }

// PBDMAError is a method or header that a PBDMA could not pass on.
type PBDMAError struct {
	PBDMA   uint8
	Channel uint8
	Intr    uint32 // NV_PPBDMA_INTR_0
	Method  uint32 // NV_PPBDMA_METHOD0
	Data    uint32
}

// MMUClient is a unit that faults are reported for: its slot at 002800 and the client
// numbers of its requests (bits 12:8 of 00280c).
type MMUClient struct {
	Slot        uint8
	Client      uint8
	WriteClient uint8 // BARs have another one for writes
	GPC         bool  // it is in a GPC, the first, and not at the hub
}

// Slots and clients: envytools rnndb/fifo/gf100_pfifo.xml (VM_FAULT).
var (
	ClientGR   = MMUClient{Slot: 0x00, Client: 0x04, WriteClient: 0x04}
	ClientTEX  = MMUClient{Slot: 0x00, Client: 0x01, WriteClient: 0x01, GPC: true} // of programs
	ClientBAR1 = MMUClient{Slot: 0x04, Client: 0x07, WriteClient: 0x08}
	ClientBAR3 = MMUClient{Slot: 0x05, Client: 0x07, WriteClient: 0x08}
	ClientHost = MMUClient{Slot: 0x07, Client: 0x06, WriteClient: 0x06}
	ClientCE0  = MMUClient{Slot: 0x15, Client: 0x01, WriteClient: 0x01}
	ClientCE1  = MMUClient{Slot: 0x16, Client: 0x02, WriteClient: 0x02}
)

// EngineClients gives the client of each engine that executes here; that of the
// others is the graphics engine's.
var EngineClients = [Engines]MMUClient{EngineGR: ClientGR, EngineCE0: ClientCE0, EngineCE1: ClientCE1}

// Bits of NV_PFIFO_MMU_FAULT_INFO.
const (
	faultHub   = 1 << 6
	faultWrite = 1 << 7
)

// Fault is the report of a faulting access of client c at va, for the channel or window
// whose instance block is at inst.
func (c MMUClient) Fault(inst, va uint64, write bool, reason uint8) MMUFault {
	f := MMUFault{Unit: c.Slot, Inst: inst, VA: va, Info: uint32(reason&0xf) | uint32(c.Client)<<8}
	if write {
		f.Info = uint32(reason&0xf) | faultWrite | uint32(c.WriteClient)<<8
	}
	if !c.GPC {
		f.Info |= faultHub
	}
	return f
}
