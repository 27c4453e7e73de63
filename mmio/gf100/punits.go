package gf100

import "github.com/umbra-gpu/umbra/mmio"

// MaxFBPs is how many framebuffer partitions the chip was designed with.
const MaxFBPs = 6

// punits reports the chip's units: how many were designed in, and which are fused off.
var punits = mmio.Block{
	Name:   "PUNITS",
	Source: "envytools rnndb/bus/punits.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PUNITS_FUSE_CONTROL", Offset: 0x22400, Stub: true},
		{Name: "NV_PUNITS_UNK004", Offset: 0x22404, Access: mmio.RO},
		{Name: "NV_PUNITS_UNK008", Offset: 0x22408, Stub: true},
		// Bit 1 means that devinit has run: the VBIOS has initialised the card.
		{Name: "NV_PUNITS_UNK00C", Offset: 0x2240c, Reset: 2},
		{Name: "NV_PUNITS_PCI", Offset: 0x2241c, Reset: 0x81},
		{Name: "NV_PUNITS_DESIGN_GPC_COUNT", Offset: 0x22430, Reset: MaxGPCs, Access: mmio.RO},
		{Name: "NV_PUNITS_DESIGN_TPC_PER_GPC_COUNT", Offset: 0x22434, Reset: MaxTPCs, Access: mmio.RO},
		{Name: "NV_PUNITS_DESIGN_PART_COUNT", Offset: 0x22438, Access: mmio.RO, Effect: "reads the number of framebuffer partitions"},
		// Bit 0 is the display engine, bits 8 and 9 the copy engines.
		{Name: "NV_PUNITS_HW_MISC_DISABLE", Offset: 0x22500, Reset: 1, Access: mmio.RO},
		{Name: "NV_PUNITS_HW_GPC_DISABLE_MASK", Offset: 0x22504, Access: mmio.RO, Effect: "reads which GPCs are fused off"},
		{Name: "NV_PUNITS_HW_TPC_DISABLE_MASK", Offset: 0x22508, Rep: []mmio.Dim{{Count: 8, Stride: 4}}, Access: mmio.RO,
			Effect: "reads which TPCs of a GPC are fused off"},
		{Name: "NV_PUNITS_HW_ZCULL_DISABLE_MASK", Offset: 0x22528, Rep: []mmio.Dim{{Count: 8, Stride: 4}}, Access: mmio.RO},
		{Name: "NV_PUNITS_HW_PART_DISABLE_MASK", Offset: 0x22548, Access: mmio.RO},
		{Name: "NV_PUNITS_HW_UNK0_DISABLE_MASK", Offset: 0x2254c, Access: mmio.RO},
		{Name: "NV_PUNITS_HW_MC_DISABLE_MASK", Offset: 0x22554, Access: mmio.RO},
		{Name: "NV_PUNITS_SW_MISC_DISABLE", Offset: 0x22580, Stub: true},
		{Name: "NV_PUNITS_SW_GPC_DISABLE_MASK", Offset: 0x22584, Stub: true},
		{Name: "NV_PUNITS_SW_TPC_DISABLE_MASK", Offset: 0x22588, Rep: []mmio.Dim{{Count: 8, Stride: 4}}, Stub: true},
		{Name: "NV_PUNITS_SW_ZCULL_DISABLE_MASK", Offset: 0x225a8, Rep: []mmio.Dim{{Count: 8, Stride: 4}}, Stub: true},
		{Name: "NV_PUNITS_SW_PART_DISABLE_MASK", Offset: 0x225c8, Stub: true},
		{Name: "NV_PUNITS_SW_MC_DISABLE_MASK", Offset: 0x225d4, Stub: true},
	},
}

// bindBoard answers for the parts of the chip that the configuration chooses, wherever they can be
// read, and for the sensor.
func (f *Face) bindBoard(b *mmio.Bindings) {
	for _, name := range []string{"NV_PUNITS_DESIGN_PART_COUNT", "NV_PFFB_PART_CONFIG", "NV_PIBUS_MAIN_PART_COUNT"} {
		b.OnRead(name, func(int, uint32) uint32 { return uint32(f.fbps) })
	}
	b.OnRead("NV_PBFB_MEM_AMOUNT", func(i int, _ uint32) uint32 {
		if i < f.fbps {
			return f.mib
		}
		return 0
	})
	b.OnRead("NV_PIBUS_MAIN_GPC_COUNT", func(int, uint32) uint32 { return uint32(len(f.cfg.TPCs)) })
	b.OnRead("NV_PUNITS_HW_GPC_DISABLE_MASK", func(int, uint32) uint32 {
		return (1<<MaxGPCs - 1) &^ (1<<len(f.cfg.TPCs) - 1)
	})
	b.OnRead("NV_PUNITS_HW_TPC_DISABLE_MASK", func(i int, _ uint32) uint32 {
		if i >= len(f.cfg.TPCs) {
			return 0
		}
		return (1<<MaxTPCs - 1) &^ (1<<f.cfg.TPCs[i] - 1)
	})
	b.OnRead("NV_PGRAPH_PRI_FECS_CFG", func(int, uint32) uint32 { return uint32(f.fbps)<<16 | uint32(len(f.cfg.TPCs)) })
	b.OnRead("NV_PGRAPH_PRI_GPC_GPCCS_CFG", func(i int, _ uint32) uint32 {
		if i >= len(f.cfg.TPCs) {
			return 0
		}
		return uint32(f.cfg.TPCs[i])
	})
	b.OnRead("NV_PTHERM_I2C_SLAVE_TEMP_HIGH", func(int, uint32) uint32 {
		return uint32(max(0, min(f.cfg.Temperature(), 255)))
	})
}

var pfuse = mmio.Block{
	Name:   "PFUSE",
	Source: "envytools rnndb/bus/pfuse.xml",
	Regs: []mmio.Reg{
		stub("NV_PFUSE_UNK000", 0x21000), // bit 0 opens the fuses for reading
		{Name: "NV_PFUSE_FUSES_TEMP_CAL_OK", Offset: 0x212a8, Reset: 1, Access: mmio.RO},
		{Name: "NV_PFUSE_FUSES_SPEEDO", Offset: 0x212cc, Reset: 0x400, Access: mmio.RO},
	},
}

var pstraps = mmio.Block{
	Name:   "PSTRAPS",
	Source: "envytools rnndb/io/pstraps.xml",
	Regs: []mmio.Reg{
		// Bits 22 and 6 are the crystal, 27 MHz; bits 5:2 the memory strap, which
		// picks entry 0 of the ROM's memory table.
		{Name: "NV_PSTRAPS_STRAPS0_PRIMARY", Offset: 0x101000, Reset: 0x00400000, Access: mmio.RO},
	},
}
