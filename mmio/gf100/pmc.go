package gf100

import "github.com/umbra-gpu/umbra/mmio"

// Boot0 is NV_PMC_BOOT_0 of a GF100, stepping a3: chipset 0c0 in bits 28:20.
const Boot0 = 0x0c0000a3

// leaves is how many interrupt lines PMC drives towards the host: leaf 0 is the
// ordinary one, leaf 1 the one rnndb calls NRHOST.
const leaves = 2

var pmc = mmio.Block{
	Name:   "PMC",
	Source: "envytools rnndb/bus/pmc.xml; NVIDIA dev_master.ref, dev_boot.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PMC_BOOT_0", Offset: 0x000, Reset: Boot0, Access: mmio.RO},
		{Name: "NV_PMC_BOOT_1", Offset: 0x004, Fields: []mmio.Field{
			{Name: "ENDIAN00", Hi: 0, Lo: 0, Access: mmio.RO}, {Name: "ENDIAN24", Hi: 24, Lo: 24, Access: mmio.RO},
		}, Access: mmio.RO},
		{Name: "NV_PMC_BOOT_2", Offset: 0x008, Access: mmio.RO},
		{Name: "NV_PMC_INTR", Barrier: mmio.BarrierRead, Offset: 0x100, Rep: []mmio.Dim{{Count: leaves, Stride: 4}}, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "SOFTWARE", Hi: 31, Lo: 31},
		}, Effect: "reads which units ask for an interrupt"},
		{Name: "NV_PMC_INTR_DAEMON", Offset: 0x108, Access: mmio.RO, Stub: true},
		{Name: "NV_PMC_INTR_EN", Offset: 0x140, Rep: []mmio.Dim{{Count: leaves, Stride: 4}}, Fields: []mmio.Field{
			{Name: "INTA", Hi: 1, Lo: 0},
		}, Access: mmio.RO, Effect: "bit 0 gates the leaf's units, bit 1 its software interrupt; written as one, it sends again what is pending"},
		{Name: "NV_PMC_INTR_EN_DAEMON", Offset: 0x148, Stub: true},
		{Name: "NV_PMC_INTR_LN", Offset: 0x160, Rep: []mmio.Dim{{Count: leaves, Stride: 4}}, Access: mmio.RO,
			Effect: "bit 0 reads the leaf's line"},
		{Name: "NV_PMC_INTR_PMFB", Offset: 0x17c, Access: mmio.RO, Stub: true},
		{Name: "NV_PMC_INTR_PBFB", Offset: 0x180, Access: mmio.RO, Stub: true},
		{Name: "NV_PMC_ENABLE", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0x200, Effect: "a bit that becomes zero resets its unit; PFIFO loses its channels"},
		{Name: "NV_PMC_ENABLE_PBDMA", Offset: 0x204, Reset: 1<<PBDMAs - 1, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "PBDMA", Hi: PBDMAs - 1, Lo: 0},
		}},
		{Name: "NV_PMC_ENABLE_UNK208", Offset: 0x208, Stub: true},
		{Name: "NV_PMC_PGRAPH_BLCG", Offset: 0x260, Stub: true},
		{Name: "NV_PMC_VRAM_HIDE_LOW", Offset: 0x300, Stub: true},
		{Name: "NV_PMC_VRAM_HIDE_HIGH", Offset: 0x304, Stub: true},
		// A driver that never writes the masks (nouveau before 6.2) must not be
		// gated by them.
		{Name: "NV_PMC_INTR_MASK", Offset: 0x640, Rep: []mmio.Dim{{Count: leaves, Stride: 4}}, Reset: 0xffffffff},
		{Name: "NV_PMC_INTR_MASK_DAEMON", Offset: 0x648, Stub: true},
		{Name: "NV_PMC_NEW_ID", Offset: 0xa00, Access: mmio.RO},
	},
}

// Bits of NV_PMC_ENABLE that this package resets units by.
const (
	enablePCE0   = 1 << 6
	enablePCE1   = 1 << 7
	enablePFIFO  = 1 << 8
	enablePGRAPH = 1 << 12
	enablePMU    = 1 << 13
)
