package gh100

import "github.com/umbra-gpu/umbra/mmio"

// SpaceSize is the size of BAR0 in bytes.
const SpaceSize = 16 << 20

// Boot0 is NV_PMC_BOOT_0: chip 180, revision A1.
const Boot0 = 0x180000a1

// ChannelClass is the class of the chip's channels (NVIDIA clc86f.h).
const ChannelClass = 0xc86f

// USERD: a channel's structure in VRAM. GP_PUT lies there too, but is no doorbell.
const (
	USERDSize  = 0x200
	USERDGPGet = 0x88
	USERDGPPut = 0x8c
)

// Where the window on memory lies in BAR0.
const (
	PRAMINBase = 0x700000
	PRAMINSize = 0x100000
)

// InPRAMIN reports whether an access of n bytes stays in the window on memory: it moves no register.
func InPRAMIN(off uint64, n int) bool {
	return off >= PRAMINBase && off+uint64(n) <= PRAMINBase+PRAMINSize
}

// Directory returns the page directory that the registers before NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE
// name, and whether it lies in system memory.
func Directory(lower, upper uint32) (addr uint64, system bool) {
	return (uint64(upper&0xfffff)<<32 | uint64(lower&^0xf)) << 8, lower&(1<<1) != 0
}

// Bits of NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE.
const (
	InvalidateAllDirs = 1 << 1
	InvalidateTrigger = 1 << 31 // reads one until the invalidate is complete
)

// Blocks returns all rows of the chip. The owner binds the effects of memory, translation and the
// doorbells, see [Face.Bind].
func Blocks() []mmio.Block {
	return []mmio.Block{pmc, board, timer, memory, pmmu, interrupts, gspBlock, fspBlock, usermode}
}

// Apertures returns the windows in BAR0. The owner binds them.
func Apertures() []mmio.Aperture {
	return []mmio.Aperture{
		{Name: "PRAMIN", Offset: PRAMINBase, Size: PRAMINSize, Policy: mmio.Translate, Effect: "1 MiB of memory, placed by 10fd40"},
	}
}

var pmc = mmio.Block{
	Name:   "PMC",
	Source: "NVIDIA dev_boot.h",
	Regs: []mmio.Reg{
		{Name: "NV_PMC_BOOT_0", Offset: 0x0, Reset: Boot0, Access: mmio.RO},
		// A driver refuses a chip with bits 17:16, a virtual function.
		{Name: "NV_PMC_BOOT_1", Offset: 0x4, Access: mmio.RO},
	},
}

var board = mmio.Block{
	Name:   "board",
	Source: "nouveau fsp/gh100.c, device/base.c",
	Regs: []mmio.Reg{
		{Name: "NV_THERM_I2CS_SCRATCH", Offset: 0x200bc, Reset: fspBooted, Access: mmio.RO},
		{Name: "NV_PEXTDEV_BOOT_0", Offset: 0x101000, Access: mmio.RO},
	},
}

var timer = mmio.Block{
	Name:   "PTIMER",
	Source: "NVIDIA dev_timer.h",
	Regs: []mmio.Reg{
		{Name: "NV_PTIMER_INTR_EN_0", Offset: 0x9140},
		{Name: "NV_PTIMER_TIME_0", Policy: mmio.Refuse, Offset: 0x9400, Effect: "reads bits 31:0 of the running time"},
		{Name: "NV_PTIMER_TIME_1", Policy: mmio.Refuse, Offset: 0x9410, Effect: "reads bits 60:32 of the running time"},
	},
}

var memory = mmio.Block{
	Name:   "memory",
	Source: "NVIDIA dev_fb.h; nouveau fb/ga102.c, instmem/gh100.c, bar/g84.c",
	Regs: []mmio.Reg{
		{Name: "NV_UFLUSH_FB_FLUSH", Barrier: mmio.BarrierRead | mmio.BarrierWrite, Offset: 0x70000,
			Effect: "host writes have landed when bit 1 reads zero"},
		{Name: "NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO", Offset: 0x100a34, Stub: true},
		{Name: "NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI", Offset: 0x100a38, Stub: true},
		{Name: "NV_XAL_EP_BAR0_WINDOW", Policy: mmio.Translate, Offset: 0x10fd40, Access: mmio.RO, Fields: []mmio.Field{
			{Name: "BASE", Hi: 23, Lo: 0},
		}, Effect: "places PRAMIN: the address in VRAM >> 16"},
		{Name: "NV_USABLE_FB_SIZE_IN_MB", Offset: 0x1183a4, Access: mmio.RO, Effect: "reads the MiB of VRAM, with the reserved end"},
	},
}

var pmmu = mmio.Block{
	Name:   "PMMU",
	Source: "NVIDIA dev_vm.h",
	Regs: []mmio.Reg{
		{Name: "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB", Policy: mmio.Translate, Offset: 0xb830a0},
		{Name: "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB", Policy: mmio.Translate, Offset: 0xb830a4},
		{Name: "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE", Barrier: mmio.BarrierRead | mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0xb830b0,
			Effect: "bit 31 drops translations, of the directory at b830a0 or of all; it reads one until that is complete"},
	},
}

var usermode = mmio.Block{
	Name:   "usermode",
	Source: "NVIDIA dev_vm.h, class c661",
	Regs: []mmio.Reg{
		{Name: "NV_VIRTUAL_FUNCTION_TIME_0", Offset: 0xbb0080, Access: mmio.RO, Effect: "reads bits 31:0 of the running time"},
		{Name: "NV_VIRTUAL_FUNCTION_TIME_1", Offset: 0xbb0084, Access: mmio.RO, Effect: "reads bits 60:32 of the running time"},
		{Name: "NV_VIRTUAL_FUNCTION_DOORBELL", Barrier: mmio.BarrierWrite, Policy: mmio.Translate, Offset: 0xbb0090, Access: mmio.WO,
			Effect: "submits a channel's work: runlist << 16 | channel"},
	},
}
