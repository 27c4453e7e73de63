package gf100

import "github.com/umbra-gpu/umbra/mmio"

// ltcSlices is how many slices each partition's second-level cache has.
const ltcSlices = 2

var pltc = mmio.Block{
	Name:   "PLTC",
	Source: "envytools rnndb/memory/gf100_pmfb.xml; NVIDIA dev_ltc",
	Regs: []mmio.Reg{
		{Name: "NV_PLTCG_LTCS_LTSS_CBC_PARAM", Offset: 0x17e8dc, Reset: ltcSlices << 28, Access: mmio.RO},
	},
}
