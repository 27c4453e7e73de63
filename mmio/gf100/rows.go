package gf100

import "github.com/umbra-gpu/umbra/mmio"

// The units below repeat; these are their dimensions.
var (
	rops = mmio.Dim{Count: MaxFBPs, Stride: 0x400}
	tpcs = mmio.Dim{Count: MaxTPCs, Stride: tpcStride}
)

// stub is a register that hardware acts on and this model only stores.
func stub(name string, off uint32) mmio.Reg { return mmio.Reg{Name: name, Offset: off, Stub: true} }

// stubs is a run of n of them.
func stubs(name string, off uint32, n int, stride uint32) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Rep: []mmio.Dim{{Count: n, Stride: stride}}, Stub: true}
}

// perROP, perGPC and perTPC are stubs that exist in each such unit; off is the
// first one's.
func perROP(name string, off uint32) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Rep: []mmio.Dim{rops}, Stub: true}
}

func perGPC(name string, off uint32) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Rep: []mmio.Dim{gpcs}, Stub: true}
}

func perTPC(name string, off uint32) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Rep: []mmio.Dim{gpcs, tpcs}, Stub: true}
}
