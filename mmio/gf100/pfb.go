package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Bits of NV_PBUS_BAR1_BLOCK and NV_PBUS_BAR2_BLOCK.
const (
	BlockVirtual = 1 << 31
	BlockAddr    = 1<<28 - 1 // instance block >> 12
)

// Bits of NV_PFB_PRI_MMU_CTRL and NV_PFB_PRI_MMU_INVALIDATE.
const (
	InvalidateDone     = 1 << 15 // of the former
	FlushBusy          = 1 << 1  // of NV_UFLUSH_FB_FLUSH
	InvalidateAllPages = 1 << 0
	InvalidateAllDirs  = 1 << 1
	InvalidateGo       = 1 << 31
)

// BlockMemory reads NV_PBUS_BAR1_BLOCK or NV_PBUS_BAR2_BLOCK: where in VRAM the instance block
// lies, and whether the BAR has page tables.
func BlockMemory(block uint32) (addr uint64, virtual bool) {
	return uint64(block&BlockAddr) << 12, block&BlockVirtual != 0
}

// PollArea reads NV_PFIFO_USERD_BASE: where in BAR1 the poll area begins.
func PollArea(base uint32) uint64 { return uint64(base&(1<<28-1)) << 12 }

// InvalidatedDirectory reads NV_PFB_PRI_MMU_INVALIDATE_PDB: the page directory that an
// invalidate names, and the memory it lies in.
func InvalidatedDirectory(pdb uint32) (target uint8, addr uint64) {
	return uint8(pdb & 3), uint64(pdb>>4) << 12
}

// PRAMINMemory reads NV_PBUS_BAR0_WINDOW: the memory that PRAMIN shows from its first byte on.
func PRAMINMemory(window uint32) (target uint8, addr uint64) {
	return uint8(window >> 24 & 3), uint64(window&0xffffff) << 16
}

// pmmu is the part of PFB and the BAR units that turns addresses into memory:
// page-table invalidation, the instance blocks of BAR1 and BAR3, the PRAMIN
// window and the flush of host writes.
var pmmu = mmio.Block{
	Name:   "PMMU",
	Source: "envytools rnndb/memory/gf100_pffb.xml, rnndb/bus/pbus.xml; NVIDIA dev_fb.ref, dev_bus.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PBUS_BAR0_WINDOW", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x1700, Fields: []mmio.Field{
			{Name: "BASE", Hi: 23, Lo: 0}, {Name: "TARGET", Hi: 25, Lo: 24},
		}, Access: mmio.RO, Effect: "moves PRAMIN: address >> 16, and the memory it lies in"},
		{Name: "NV_PBUS_BAR1_BLOCK", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x1704, Effect: "bit 31 on; instance block >> 12 of BAR1"},
		{Name: "NV_PBUS_BAR2_BLOCK", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x1714, Effect: "bit 31 on; instance block >> 12 of BAR3"},
		{Name: "NV_UFLUSH_FB_FLUSH", Barrier: mmio.BarrierRead | mmio.BarrierWrite, Offset: 0x70000, Effect: "host writes have landed when bit 1 reads zero"},
		{Name: "NV_PFB_PRI_MMU_CTRL", Barrier: mmio.BarrierRead, Policy: mmio.Translate, Offset: 0x100c80, Fields: []mmio.Field{
			{Name: "SETTINGS", Hi: 14, Lo: 0},
			{Name: "INVALIDATE_DONE", Hi: 15, Lo: 15, Access: mmio.RO},
			{Name: "FIFO_SPACE", Hi: 23, Lo: 16, Access: mmio.RO},
		}, Access: mmio.RO, Reset: 0x00ff8000, Effect: "bit 15 reads zero while an engine may still use an old translation"},
		{Name: "NV_PFB_PRI_MMU_INVALIDATE_PDB", Policy: mmio.Translate, Offset: 0x100cb8},
		{Name: "NV_PFB_PRI_MMU_INVALIDATE", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x100cbc, Effect: "drops cached translations of the directory at 100cb8, or of all"},
	},
}
