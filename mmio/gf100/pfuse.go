package gf100

import "github.com/umbra-gpu/umbra/mmio"

var pfuse = mmio.Block{
	Name:   "PFUSE",
	Source: "envytools rnndb/bus/pfuse.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PFUSE_CONTROL", Offset: 0x21000, Stub: true},
		{Name: "NV_PFUSE_TEMP_CAL_OK", Offset: 0x212a8, Access: mmio.RO, Effect: "reads one if the temperature sensor is calibrated"},
		{Name: "NV_PFUSE_SPEEDO", Offset: 0x212cc, Reset: 0x400, Access: mmio.RO},
	},
}
