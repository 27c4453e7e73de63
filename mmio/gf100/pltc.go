package gf100

import "github.com/umbra-gpu/umbra/mmio"

// ltcSlices is how many slices each partition's second-level cache has.
const ltcSlices = 2

var ltcs = []mmio.Dim{{Count: MaxFBPs, Stride: 0x2000}, {Count: ltcSlices, Stride: 0x400}}

// pltc is the second-level cache. rnndb calls it PMFB, NVIDIA LTC. It has nothing to cache
// here: flushes, invalidations and clears of compression tags complete immediately.
var pltc = mmio.Block{
	Name:   "PLTC",
	Source: "envytools rnndb/memory/gf100_pmfb.xml; NVIDIA dev_flush",
	Regs: []mmio.Reg{
		flush("NV_UFLUSH_L2_SYSTEM_INVALIDATE", 0x70004),
		flush("NV_UFLUSH_L2_FLUSH_DIRTY", 0x70010),
		{Name: "NV_PMFB_SUBP_INTR", Offset: 0x141020, Rep: ltcs, Access: mmio.W1C},
		{Name: "NV_PMFB_SUBP_COMP_TRIGGER", Offset: 0x1410c8, Rep: ltcs, Access: mmio.WO},
		{Name: "NV_PMFB_SUBP_CONFIG", Offset: 0x1410dc, Rep: ltcs, Reset: ltcSlices << 28, Access: mmio.RO},
		{Name: "NV_PMFB_BROADCAST_SUBP_BROADCAST_INTR", Offset: 0x17e820, Stub: true},
		{Name: "NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_UNK0", Offset: 0x17e8c0, Stub: true},
		// The broadcast trigger reaches the slices' triggers above, which read as
		// done.
		{Name: "NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_TRIGGER", Offset: 0x17e8c8, Access: mmio.WO, Stub: true},
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_CLEAR_TAG_START", 0x17e8cc),
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_CLEAR_TAG_END", 0x17e8d0),
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_TAGMEM_BASE", 0x17e8d4),
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_COMP_PART_COUNT", 0x17e8d8),
		{Name: "NV_PMFB_BROADCAST_SUBP_BROADCAST_CONFIG", Offset: 0x17e8dc, Reset: ltcSlices << 28, Access: mmio.RO},
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_UNK110", 0x17e910),
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_UNK11C", 0x17e91c),
		// Zero-bandwidth clear: an index, four words of colour, one of depth.
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_UNK244", 0x17ea44),
		stubs("NV_PMFB_BROADCAST_SUBP_BROADCAST_UNK248", 0x17ea48, 4, 4),
		stub("NV_PMFB_BROADCAST_SUBP_BROADCAST_UNK258", 0x17ea58),
	},
}

// flush is a request that is done when bits 1:0 read zero.
func flush(name string, off uint32) mmio.Reg {
	return mmio.Reg{Name: name, Barrier: mmio.BarrierRead | mmio.BarrierWrite, Offset: off, Access: mmio.RO, Fields: []mmio.Field{{Name: "BUSY", Hi: 1, Lo: 0, Access: mmio.WO}}}
}
