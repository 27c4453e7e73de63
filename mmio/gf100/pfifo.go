package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Sizes of the channel machinery.
const (
	Channels   = 128 // entries of the channel table
	PBDMAs     = 3   // pushbuffer readers
	Engines    = 6   // engine slots of the status and interrupt registers
	FaultUnits = 32  // MMU fault slots at 002800

	engEvents = 8 // event registers at 0025a8, engines that are not there included
)

// Engine numbers as PFIFO's per-engine registers count them (0025a8, 002640).
const (
	EngineGR  = 0
	EngineCE0 = 4
	EngineCE1 = 5
)

// Executing are the engines that execute channels' work.
var Executing = [...]int{EngineGR, EngineCE0, EngineCE1}

// EnablePFIFO is PFIFO's bit of NV_PMC_ENABLE.
const EnablePFIFO = enablePFIFO

// EngineEnable is each engine's bit of NV_PMC_ENABLE; 0 for engines that are
// not modelled.
var EngineEnable = [Engines]uint32{EngineGR: enablePGRAPH, EngineCE0: enablePCE0, EngineCE1: enablePCE1}

// Bits of NV_PFIFO_INTR_0. Bits 28 to 31 are levels of the registers named
// beside them, the others are latched until written with one.
const (
	IntrBind     = 1 << 0  // reason in NV_PFIFO_INTR_BIND_ERROR
	IntrSched    = 1 << 8  // reason in NV_PFIFO_INTR_SCHED_ERROR
	IntrMMUFault = 1 << 28 // NV_PFIFO_INTR_MMU_FAULT_ID
	IntrPBDMA    = 1 << 29 // NV_PFIFO_INTR_PBDMA_ID
	IntrRunlist  = 1 << 30 // NV_PFIFO_INTR_RUNLIST
	IntrEngine   = 1 << 31 // NV_PFIFO_ENG_EVENT
)

// BindInvalid in NV_PFIFO_INTR_BIND_ERROR is the code for an invalid instance block, which
// the next generation's driver calls INVALID_CTX_TGT.
const BindInvalid = 6

// SchedRunlistData in NV_PFIFO_INTR_SCHED_ERROR is the code for a runlist that could not be
// read. rnndb has few of GF100's codes, but they agree with those of a later chip, which
// calls this one RL_RDAT_TIMEOUT.
const SchedRunlistData = 8

// pfifo is the channel scheduler. Offsets: envytools rnndb fifo/gf100_pfifo.xml;
// names: NVIDIA's manuals of later chips (dev_fifo) where the register is the
// same, else rnndb's.
var pfifo = mmio.Block{
	Name:   "PFIFO",
	Source: "envytools rnndb/fifo/gf100_pfifo.xml; NVIDIA dev_fifo.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PFIFO_INTR_0", Offset: 0x2100, Access: mmio.W1C, Fields: []mmio.Field{
			{Name: "LEVELS", Hi: 31, Lo: 28, Access: mmio.RO},
		}, Effect: "read adds the levels of the runlist, PBDMA, MMU fault and engine registers; write acknowledges"},
		{Name: "NV_PFIFO_INTR_EN_0", Offset: 0x2140, Effect: "gates 002100 into the interrupt tree"},
		{Name: "NV_PFIFO_ENABLE", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x2200, Effect: "bit 0 lets channels run"},
		{Name: "NV_PFIFO_PBDMA_ENABLE", Offset: 0x2204, Reset: 1<<PBDMAs - 1, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "PBDMA", Hi: PBDMAs - 1, Lo: 0},
		}},
		{Name: "NV_PFIFO_ENG_PBDMA_MAP", Offset: 0x2208, Rep: []mmio.Dim{{Count: Engines, Stride: 4}}},
		{Name: "NV_PFIFO_USERD_BASE", Policy: mmio.Translate, Offset: 0x2254, Effect: "places the poll area: 1<<28 | BAR1 offset >> 12"},
		{Name: "NV_PFIFO_RUNLIST_BASE", Policy: mmio.Translate, Offset: 0x2270},
		{Name: "NV_PFIFO_RUNLIST", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x2274, Effect: "commits the runlist at 002270"},
		{Name: "NV_PFIFO_ENG_RUNLIST_BASE", Offset: 0x2278, Access: mmio.RO},
		{Name: "NV_PFIFO_ENG_RUNLIST", Barrier: mmio.BarrierRead, Policy: mmio.Translate, Offset: 0x227c, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "PENDING", Hi: 20, Lo: 20, Access: mmio.RO},
		}, Effect: "reads the update as pending while a channel that left the list still runs"},
		{Name: "NV_PFIFO_INTR_BIND_ERROR", Offset: 0x252c},
		{Name: "NV_PFIFO_INTR_SCHED_ERROR", Offset: 0x254c, Access: mmio.RO},
		{Name: "NV_PFIFO_INTR_CHSW_ERROR", Offset: 0x256c, Access: mmio.RO},
		{Name: "NV_PFIFO_INTR_LB_ERROR", Offset: 0x258c, Access: mmio.RO},
		{Name: "NV_PFIFO_INTR_MMU_FAULT_ID", Offset: 0x259c, Access: mmio.W1C, Effect: "write frees the fault slots, for the faults that wait for them"},
		{Name: "NV_PFIFO_INTR_PBDMA_ID", Offset: 0x25a0, Access: mmio.RO, Effect: "reads which PBDMA has an enabled interrupt"},
		{Name: "NV_PFIFO_ENG_EVENT", Offset: 0x25a4, Access: mmio.RO, Effect: "reads which engine has an event"},
		{Name: "NV_PFIFO_ENG_EVENT_STATUS", Offset: 0x25a8, Rep: []mmio.Dim{{Count: engEvents, Stride: 4}}, Access: mmio.W1C,
			Effect: "bit 0: non-stall event; write acknowledges"},
		{Name: "NV_PFIFO_ENG_EVENT_EN", Offset: 0x2628},
		// Bit n ends the fault state of runlist n's engines. Here that ends with the
		// channel that caused it, so there is nothing left to clear.
		{Name: "NV_PFIFO_ERROR_CLEAR", Offset: 0x262c, Access: mmio.WO, Stub: true},
		{Name: "NV_PFIFO_SCHED_DISABLE", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x2630, Effect: "bit 0 keeps the runlist from being scheduled"},
		{Name: "NV_PFIFO_PREEMPT", Barrier: mmio.BarrierRead | mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x2634, Effect: "asks a channel to leave its PBDMA; bit 20 reads one until it has"},
		{Name: "NV_PFIFO_ENGINE_STATUS", Policy: mmio.Translate, Offset: 0x2640, Rep: []mmio.Dim{{Count: Engines, Stride: 4}}, Access: mmio.RO,
			Effect: "reads busy and the channel of each engine"},
		{Name: "NV_PFIFO_MMU_FAULT_INST", Offset: 0x2800, Rep: []mmio.Dim{{Count: FaultUnits, Stride: 0x10}}, Access: mmio.RO},
		{Name: "NV_PFIFO_MMU_FAULT_VA_LO", Offset: 0x2804, Rep: []mmio.Dim{{Count: FaultUnits, Stride: 0x10}}, Access: mmio.RO},
		{Name: "NV_PFIFO_MMU_FAULT_VA_HI", Offset: 0x2808, Rep: []mmio.Dim{{Count: FaultUnits, Stride: 0x10}}, Access: mmio.RO},
		{Name: "NV_PFIFO_MMU_FAULT_INFO", Offset: 0x280c, Rep: []mmio.Dim{{Count: FaultUnits, Stride: 0x10}}, Access: mmio.RO},
		{Name: "NV_PFIFO_INTR_RUNLIST", Offset: 0x2a00, Access: mmio.W1C, Effect: "bit 28: runlist update done; write acknowledges"},
		{Name: "NV_PFIFO_TIMEOUT", Offset: 0x2a04},
		{Name: "NV_PFIFO_MMU_FAULT_TRIGGER", Policy: mmio.Translate, Offset: 0x2a30, Rep: []mmio.Dim{{Count: Engines, Stride: 4}},
			Effect: "bit 8 makes the engine's channel fault; it stays set until the driver clears it"},
	},
}

// pccsr is the channel table.
var pccsr = mmio.Block{
	Name:   "PCCSR",
	Source: "envytools rnndb/fifo/gf100_pfifo.xml (CHAN); NVIDIA dev_fifo.ref (NV_PCCSR)",
	Regs: []mmio.Reg{
		{Name: "NV_PCCSR_CHANNEL_INST", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x3000, Rep: []mmio.Dim{{Count: Channels, Stride: 8}},
			Effect: "binds a channel: 3<<30 | instance block >> 12; 0 unbinds"},
		{Name: "NV_PCCSR_CHANNEL", Barrier: mmio.BarrierRead | mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x3004, Rep: []mmio.Dim{{Count: Channels, Stride: 8}},
			Effect: "bit 0 enables the channel; bit 28 reads busy, bits 27:24 zero when nothing is left to do"},
	},
}

// ppbdma is the face of the pushbuffer readers: what they report when a channel
// sent something they cannot pass on.
var ppbdma = mmio.Block{
	Name:   "PPBDMA",
	Source: "envytools rnndb/fifo/gf100_pfifo.xml (PSUBFIFO); NVIDIA dev_pbdma.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PPBDMA_METHOD0", Offset: 0x400c0, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}},
			Effect: "bit 31 set: the held method is passed over when it is acknowledged; else it is tried again"},
		{Name: "NV_PPBDMA_DATA0", Offset: 0x400c4, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}}},
		{Name: "NV_PPBDMA_INTR_0", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x40108, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}}, Access: mmio.W1C,
			Effect: "write acknowledges; the PBDMA continues when no bit is left"},
		{Name: "NV_PPBDMA_INTR_EN_0", Offset: 0x4010c, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}},
			Effect: "gates 040108 into 0025a0"},
		{Name: "NV_PPBDMA_CHANNEL", Offset: 0x40120, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}}, Access: mmio.RO},
		{Name: "NV_PPBDMA_INTR_STALL", Offset: 0x4013c, Rep: []mmio.Dim{{Count: PBDMAs, Stride: 0x2000}}},
	},
}

// Bits of NV_PPBDMA_INTR_0.
const (
	PBDMAIntrGPPtr      = 1 << 14 // GP_GET or GP_PUT outside the ring
	PBDMAIntrGPEntry    = 1 << 15 // a control entry that is none
	PBDMAIntrPBEntry    = 1 << 18 // a pushbuffer header that is none
	PBDMAIntrMethod     = 1 << 21 // a method that no engine accepts
	PBDMAIntrEmptySubch = 1 << 23 // a method for a subchannel without an engine: software's
	PBDMAIntrSemaphore  = 1 << 24
)

// PBDMAIntrMethods are the bits of errors that leave a method to be executed, or
// passed over. After another error there is nothing to try again.
const PBDMAIntrMethods = PBDMAIntrMethod | PBDMAIntrEmptySubch | PBDMAIntrSemaphore

// Bits of PFIFO's registers.
const (
	FIFOEnabled     = 1 << 0   // NV_PFIFO_ENABLE
	SchedRunlist    = 1 << 0   // NV_PFIFO_SCHED_DISABLE: the one runlist's
	FaultTrigger    = 1 << 8   // NV_PFIFO_MMU_FAULT_TRIGGER
	RunlistPending  = 1 << 20  // NV_PFIFO_ENG_RUNLIST
	PreemptPending  = 1 << 20  // NV_PFIFO_PREEMPT
	EngineBusy      = 1 << 28  // NV_PFIFO_ENGINE_STATUS; the channel in the lowest bits
	ChannelEnabled  = 1 << 0   // NV_PCCSR_CHANNEL
	ChannelBusy     = 1 << 28  // NV_PCCSR_CHANNEL
	ChannelStatus   = 15 << 24 // what is left of the channel's work: 0 is nothing
	ChannelPending  = 1 << 24
	ChannelAcquire  = 3 << 24 // pending, at a semaphore
	InstanceBound   = 1 << 31 // NV_PCCSR_CHANNEL_INST
	InstanceAddr    = 1<<28 - 1
	PBDMAMethodSkip = 1 << 31 // NV_PPBDMA_METHOD0
)
