package gf100

import "github.com/umbra-gpu/umbra/mmio"

var fbps = mmio.Dim{Count: MaxFBPs, Stride: 0x1000}

// pbfb is the memory controllers, one in each framebuffer partition, and the
// crossbar's view of them. Timings and training are stored: the memory is
// always ready.
var pbfb = mmio.Block{
	Name:   "PBFB",
	Source: "envytools rnndb/memory/gf100_pbfb.xml, gf100_pffb.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PFFB_PART_CONFIG", Offset: 0x100800, Access: mmio.RO, Effect: "reads the number of framebuffer partitions"},
		stub("NV_PFFB_UNKB0C", 0x100b0c),
		stub("NV_PFFB_UNKC00_UNK08_SYSRAM_ADDR", 0x100c10),
		stub("NV_PBFB_BROADCAST_UNK050", 0x10f050),
		stub("NV_PBFB_BROADCAST_UNK090", 0x10f090),
		stub("NV_PBFB_BROADCAST_PM_UNK100", 0x10f100),
		stub("NV_PBFB_BROADCAST_CFG0", 0x10f200),
		stub("NV_PBFB_BROADCAST_REFCTRL", 0x10f210),
		stubs("NV_PBFB_BROADCAST_MEM_TIMINGS", 0x10f290, 7, 4),
		stub("NV_PBFB_BROADCAST_RAMCHIP_CFG_BANK0_MR", 0x10f300),
		stub("NV_PBFB_BROADCAST_RAMCHIP_CFG_REFRESH", 0x10f310),
		stub("NV_PBFB_BROADCAST_RAMCHIP_CFG_PRECHARGE", 0x10f314),
		stub("NV_PBFB_BROADCAST_UNK338", 0x10f338),
		stubs("NV_PBFB_BROADCAST_UNK340", 0x10f340, 3, 4),
		stubs("NV_PBFB_BROADCAST_UNK610", 0x10f610, 2, 4),
		stub("NV_PBFB_BROADCAST_UNK800", 0x10f800),
		stub("NV_PBFB_BROADCAST_UNK808", 0x10f808),
		stub("NV_PBFB_BROADCAST_UNK824", 0x10f824),
		stub("NV_PBFB_BROADCAST_UNK830", 0x10f830),
		stubs("NV_PBFB_BROADCAST_UNK910", 0x10f910, 6, 4),
		stubs("NV_PBFB_BROADCAST_UNK968", 0x10f968, 2, 4),
		stubs("NV_PBFB_BROADCAST_UNK988", 0x10f988, 3, 4),
		stub("NV_PBFB_BROADCAST_UNK998", 0x10f998),
		stubs("NV_PBFB_BROADCAST_UNK9B0", 0x10f9b0, 2, 4),
		stubs("NV_PBFB_BROADCAST_UNKB04", 0x10fb04, 2, 4),
		stubs("NV_PBFB_BROADCAST_UNKE20", 0x10fe20, 2, 4),
		{Name: "NV_PBFB_MEM_AMOUNT", Offset: 0x11020c, Rep: []mmio.Dim{fbps}, Access: mmio.RO, Effect: "reads the MiB of memory on the partition"},
		{Name: "NV_PBFB_UNK974", Offset: 0x110974, Rep: []mmio.Dim{fbps}, Access: mmio.RO, Stub: true}, // training is done at zero
	},
}
