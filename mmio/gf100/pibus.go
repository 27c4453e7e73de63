package gf100

import "github.com/umbra-gpu/umbra/mmio"

var (
	ibusHubs  = mmio.Dim{Count: 8, Stride: 0x400}
	ibusParts = mmio.Dim{Count: 16, Stride: 0x400}
	ibusGPCs  = mmio.Dim{Count: 32, Stride: 0x400}
)

// pibus is the ring that carries register accesses to the units; nouveau calls
// it PRIVRING. No access ever fails on it.
var pibus = mmio.Block{
	Name:   "PIBUS",
	Source: "envytools rnndb/bus/pibus.xml",
	Regs: []mmio.Reg{
		// A command is done when bits 5:0 read zero.
		{Name: "NV_PIBUS_MAIN_UNKC4C", Offset: 0x121c4c, Fields: []mmio.Field{{Name: "COMMAND", Hi: 5, Lo: 0, Access: mmio.WO}}},
		{Name: "NV_PIBUS_MAIN_MMIO_INTR_0", Offset: 0x121c58, Access: mmio.RO},
		{Name: "NV_PIBUS_MAIN_MMIO_INTR_GPC", Offset: 0x121c5c, Access: mmio.RO},
		{Name: "NV_PIBUS_MAIN_HUB_COUNT", Offset: 0x121c70, Access: mmio.RO, Reset: 1},
		{Name: "NV_PIBUS_MAIN_PART_COUNT", Offset: 0x121c74, Access: mmio.RO, Effect: "reads the number of framebuffer partitions"},
		{Name: "NV_PIBUS_MAIN_GPC_COUNT", Offset: 0x121c78, Access: mmio.RO, Effect: "reads the number of GPCs"},
		{Name: "NV_PIBUS_MMIO_HUB_INTR_ADDR", Offset: 0x122120, Rep: []mmio.Dim{ibusHubs}},
		{Name: "NV_PIBUS_MMIO_HUB_INTR_VALUE", Offset: 0x122124, Rep: []mmio.Dim{ibusHubs}},
		{Name: "NV_PIBUS_MMIO_HUB_INTR", Offset: 0x122128, Rep: []mmio.Dim{ibusHubs}},
		{Name: "NV_PIBUS_MMIO_HUB_CFG", Offset: 0x122300, Rep: []mmio.Dim{ibusHubs, {Count: 64, Stride: 4}}, Stub: true},
		{Name: "NV_PIBUS_MMIO_PART_INTR_ADDR", Offset: 0x124120, Rep: []mmio.Dim{ibusParts}},
		{Name: "NV_PIBUS_MMIO_PART_INTR_VALUE", Offset: 0x124124, Rep: []mmio.Dim{ibusParts}},
		{Name: "NV_PIBUS_MMIO_PART_INTR", Offset: 0x124128, Rep: []mmio.Dim{ibusParts}},
		{Name: "NV_PIBUS_MMIO_GPC_INTR_ADDR", Offset: 0x128120, Rep: []mmio.Dim{ibusGPCs}},
		{Name: "NV_PIBUS_MMIO_GPC_INTR_VALUE", Offset: 0x128124, Rep: []mmio.Dim{ibusGPCs}},
		{Name: "NV_PIBUS_MMIO_GPC_INTR", Offset: 0x128128, Rep: []mmio.Dim{ibusGPCs}},
	},
}
