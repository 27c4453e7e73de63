package gf100

import "github.com/umbra-gpu/umbra/mmio"

// The three video decoding engines. Their microcode comes from outside the driver and it is
// not emulated, so their controllers have no memory to load it into.
var videoViews = []falconView{
	{prefix: "NV_PVLD", base: 0x084000},
	{prefix: "NV_PPDEC", base: 0x085000},
	{prefix: "NV_PPPP", base: 0x086000},
}

var pvdec = mmio.Block{
	Name:   "PVDEC",
	Source: "envytools rnndb/vdec/vp3, rnndb/falcon.xml",
	Regs:   append(append(videoViews[0].regs(), videoViews[1].regs()...), videoViews[2].regs()...),
}
