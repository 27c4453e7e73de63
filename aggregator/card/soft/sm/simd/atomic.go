package simd

import (
	"math"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// reductions are the operations of isa.RedOp that have a fast way.
var reductions = [16]func(old, v, _ uint32) uint32{
	func(old, v, _ uint32) uint32 { return old + v },
	func(old, v, _ uint32) uint32 { return min(old, v) },
	func(old, v, _ uint32) uint32 { return max(old, v) },
	5: func(old, v, _ uint32) uint32 { return old & v },
	6: func(old, v, _ uint32) uint32 { return old | v },
	7: func(old, v, _ uint32) uint32 { return old ^ v },
}

var signedReductions = [16]func(old, v, _ uint32) uint32{
	reductions[0],
	func(old, v, _ uint32) uint32 { return uint32(min(int32(old), int32(v))) },
	func(old, v, _ uint32) uint32 { return uint32(max(int32(old), int32(v))) },
}

func init() {
	for op, f := range map[isa.Op]func(o *operation) func(old, v, other uint32) uint32{
		isa.Red:   func(o *operation) func(old, v, other uint32) uint32 { return reductions[o.Mod[isa.RedOp]&15] },
		isa.Atom:  func(o *operation) func(old, v, other uint32) uint32 { return reductions[o.Mod[isa.RedOp]&15] },
		isa.RedS:  func(o *operation) func(old, v, other uint32) uint32 { return signedReductions[o.Mod[isa.RedOp]&15] },
		isa.AtomS: func(o *operation) func(old, v, other uint32) uint32 { return signedReductions[o.Mod[isa.RedOp]&15] },
		isa.RedF:  func(*operation) func(old, v, other uint32) uint32 { return addFloats },
		isa.AtomF: func(*operation) func(old, v, other uint32) uint32 { return addFloats },
		isa.Exch:  func(*operation) func(old, v, other uint32) uint32 { return func(_, v, _ uint32) uint32 { return v } },
		isa.Cas: func(*operation) func(old, v, other uint32) uint32 {
			return func(old, v, other uint32) uint32 {
				if old == v {
					return other
				}
				return old
			}
		},
	} {
		plans[op] = func(o *operation) bool {
			o.access, o.cost = access{size: 4, words: 1}, costPage
			o.run, o.atomic = runAtomic, f(o)
			return o.atomic != nil && o.Src[0].Space == isa.Global
		}
	}
}

func addFloats(old, v, _ uint32) uint32 {
	p := params{}
	return p.finish(math.Float32frombits(old) + math.Float32frombits(v))
}

// runAtomic lets lanes change memory in their order. No lane does if one is not allowed.
func runAtomic(x *Executor, o *operation) bool {
	v, other := x.source(&o.src[1]), x.source(&o.src[2])
	if v == nil || other == nil {
		return false
	}
	if !x.addresses(o) {
		return false
	}
	var places [interp.Lanes][]byte
	for i := range places {
		if x.lanes>>i&1 != 0 {
			if places[i] = x.memory.at(x.addr[i], 4, true); places[i] == nil {
				return false
			}
		}
	}
	d := &x.scratch[0]
	for i, b := range places {
		if b != nil {
			d[i] = change(interp.Word(b), o.atomic, v[i], other[i])
		}
	}
	if o.Dst.Kind == isa.Reg {
		x.merge(o.dst, d)
	}
	return true
}

// change replaces a word by what f makes of it, at once for all processors, and returns the old one.
func change(word *uint32, f func(old, v, other uint32) uint32, v, other uint32) uint32 {
	for {
		old := atomic.LoadUint32(word)
		if atomic.CompareAndSwapUint32(word, old, f(old, v, other)) {
			return old
		}
	}
}
