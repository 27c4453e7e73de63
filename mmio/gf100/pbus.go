package gf100

import "github.com/umbra-gpu/umbra/mmio"

var pbus = mmio.Block{
	Name:   "PBUS",
	Source: "envytools rnndb/bus/pbus.xml; NVIDIA dev_bus.ref",
	Regs: []mmio.Reg{
		{Name: "NV_PBUS_INTR_0", Offset: 0x1100, Access: mmio.W1C},
		{Name: "NV_PBUS_INTR_EN_0", Offset: 0x1140},
	},
}
