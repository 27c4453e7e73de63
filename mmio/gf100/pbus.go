package gf100

import "github.com/umbra-gpu/umbra/mmio"

// pbus is the host interface. Its window registers (001700 to 001714) are part
// of PMMU.
var pbus = mmio.Block{
	Name:   "PBUS",
	Source: "envytools rnndb/bus/pbus.xml; NVIDIA dev_bus.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PBUS_INTR_0", Offset: 0x1100, Access: mmio.W1C},
		{Name: "NV_PBUS_INTR_EN_0", Offset: 0x1140},
		{Name: "NV_PBUS_INTR_EN_NRHOST", Offset: 0x1144, Stub: true},
		{Name: "NV_PBUS_INTR_USER0_TRIGGER", Offset: 0x1150, Stub: true},
		{Name: "NV_PBUS_INTR_USER0_SCRATCH", Offset: 0x1154, Rep: []mmio.Dim{{Count: 4, Stride: 4}}},
		{Name: "NV_PBUS_INTR_USER1_TRIGGER", Offset: 0x1170, Stub: true},
		{Name: "NV_PBUS_INTR_USER1_SCRATCH", Offset: 0x1174, Rep: []mmio.Dim{{Count: 4, Stride: 4}}},
		{Name: "NV_PBUS_UNK1620", Offset: 0x1620, Stub: true},
		{Name: "NV_PBUS_HOST_MEM_PEEPHOLE", Offset: 0x1718, Stub: true},
	},
}

// ppeephole writes single words of a channel's memory for the software class.
var ppeephole = mmio.Block{
	Name:   "PPEEPHOLE",
	Source: "envytools rnndb/bus/pbus.xml",
	Regs: []mmio.Reg{
		stub("NV_PPEEPHOLE_RW_ADDR_HIGH", 0x6000c),
		stub("NV_PPEEPHOLE_RW_ADDR_LOW", 0x60010),
		stub("NV_PPEEPHOLE_RW_DATA", 0x60014),
	},
}
