package gf100

import "github.com/umbra-gpu/umbra/mmio"

var pstraps = mmio.Block{
	Name:   "PSTRAPS",
	Source: "envytools rnndb/io/pstraps.xml",
	Regs: []mmio.Reg{
		// Bits 22 and 6 are the crystal, 27 MHz; bits 5:2 the memory strap, which
		// picks entry 0 of the ROM's memory table.
		{Name: "NV_PSTRAPS_STRAPS0_PRIMARY", Offset: 0x101000, Reset: 0x00400000, Access: mmio.RO},
	},
}
