package gf100

import "github.com/umbra-gpu/umbra/mmio"

// CEs is how many copy engines the chip has.
const CEs = 2

// pceView shows both copy engines' controllers. Their microcode is nouveau's
// own and is uploaded into the controller's memory; what it does with a
// channel's methods is the business of whoever owns the engines.
var pceView = falconView{
	prefix: "NV_PCE", base: 0x104000, rep: []mmio.Dim{{Count: CEs, Stride: 0x1000}},
	spec: falconSpec{hwcfg: 0x4020, hwcfg1: 3},
}

var pce = mmio.Block{
	Name:   "PCE",
	Source: "envytools rnndb/fifo/pcopy.xml, rnndb/falcon.xml",
	Regs:   pceView.regs(),
}

type pceUnit struct{ falcons [CEs]*falcon }

func newPCE() *pceUnit {
	u := &pceUnit{}
	for i := range u.falcons {
		u.falcons[i] = newFalcon(pceView.spec)
	}
	return u
}

func (u *pceUnit) bind(b *mmio.Bindings) { pceView.bind(b, u.falcons[:]) }

func (u *pceUnit) attach(*mmio.Space) {}

func (u *pceUnit) reset() {
	for _, f := range u.falcons {
		f.power()
	}
}
