package gf100

import "github.com/umbra-gpu/umbra/mmio"

// pibus is the ring that carries register accesses to the units; nouveau calls
// it PRIVRING.
var pibus = mmio.Block{
	Name:   "PIBUS",
	Source: "envytools rnndb/bus/pibus.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PIBUS_MAIN_PART_COUNT", Offset: 0x121c74, Access: mmio.RO, Effect: "reads the number of framebuffer partitions"},
	},
}
