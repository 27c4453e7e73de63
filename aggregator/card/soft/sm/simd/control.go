package simd

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	plans[isa.Bra] = func(o *operation) bool {
		o.run, o.cost, o.slow = runBranch, costPage, costPage
		return true
	}
	for _, op := range []isa.Op{isa.Nop, isa.CacheCtl, isa.PMEvent} {
		plans[op] = func(o *operation) bool {
			o.run = func(*Executor, *operation) bool { return true }
			return true
		}
	}
	for _, op := range []isa.Op{
		isa.Tex, isa.TexFetch, isa.TexGather, isa.TexLod, isa.TexGrad, isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfRed,
	} {
		plans[op] = func(o *operation) bool { o.slow = costSlow; return false }
	}
	// Operations on a warp are fast lane by lane, too.
	for _, op := range []isa.Op{
		isa.Call, isa.JoinAt, isa.PreBrk, isa.PreCont, isa.PreRet, isa.Brk, isa.Cont, isa.Ret, isa.Exit, isa.Barrier, isa.MemBar,
	} {
		plans[op] = func(o *operation) bool {
			o.slow, o.stops = 2*costPage, o.Op == isa.Exit || o.Op == isa.Barrier
			return false
		}
	}
}

// runBranch takes a branch that does not divide the warp.
func runBranch(x *Executor, o *operation) bool {
	switch {
	case x.lanes == x.w.Active:
		x.w.PC = o.Target
	case o.Mod[isa.AllWarp] != 0:
	default:
		return false
	}
	return true
}
