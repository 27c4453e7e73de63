package gf100

import "github.com/umbra-gpu/umbra/mmio"

var pfuse = mmio.Block{
	Name:   "PFUSE",
	Source: "envytools rnndb/bus/pfuse.xml",
	Regs: []mmio.Reg{
		stub("NV_PFUSE_UNK000", 0x21000), // bit 0 opens the fuses for reading
		{Name: "NV_PFUSE_FUSES_TEMP_CAL_OK", Offset: 0x212a8, Access: mmio.RO, Effect: "reads one if the temperature sensor is calibrated"},
		{Name: "NV_PFUSE_FUSES_SPEEDO", Offset: 0x212cc, Reset: 0x400, Access: mmio.RO},
	},
}
