package interp

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, f := range map[isa.Op]func(*exec, int){
		isa.Red: (*exec).reduce, isa.RedS: (*exec).reduceSigned, isa.RedF: (*exec).reduceFloat, isa.Red64: (*exec).reduce64,
		isa.Atom: (*exec).reduce, isa.AtomS: (*exec).reduceSigned, isa.AtomF: (*exec).reduceFloat, isa.Atom64: (*exec).reduce64,
		isa.Exch: func(x *exec, lane int) {
			v := x.u32(1, lane)
			x.update(lane, func(uint32) uint32 { return v })
		},
		isa.Exch64: func(x *exec, lane int) {
			v := x.u64(1, lane)
			x.update64(lane, func(uint64) uint64 { return v })
		},
		isa.Cas: func(x *exec, lane int) {
			want, v := x.u32(1, lane), x.u32(2, lane)
			x.update(lane, func(old uint32) uint32 { return pick(old == want, v, old) })
		},
		isa.Cas64: func(x *exec, lane int) {
			want, v := x.u64(1, lane), x.u64(2, lane)
			x.update64(lane, func(old uint64) uint64 { return pick(old == want, v, old) })
		},
	} {
		laneOps[op] = f
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// unsigned are the operations of isa.RedOp.
var unsigned = [...]func(old, v uint32) uint32{
	func(old, v uint32) uint32 { return old + v },
	func(old, v uint32) uint32 { return min(old, v) },
	func(old, v uint32) uint32 { return max(old, v) },
	func(old, v uint32) uint32 { return pick(old >= v, 0, old+1) },
	func(old, v uint32) uint32 { return pick(old == 0 || old > v, v, old-1) },
	func(old, v uint32) uint32 { return old & v },
	func(old, v uint32) uint32 { return old | v },
	func(old, v uint32) uint32 { return old ^ v },
}

func (x *exec) reduce(lane int) {
	v, f := x.u32(1, lane), unsigned[x.in.Mod[isa.RedOp]]
	x.update(lane, func(old uint32) uint32 { return f(old, v) })
}

// reduceSigned compares as if signed: with the top bits inverted. Sums need no care.
func (x *exec) reduceSigned(lane int) {
	const top = 1 << 31
	v, op := x.u32(1, lane), x.in.Mod[isa.RedOp]
	x.update(lane, func(old uint32) uint32 {
		if op == 0 {
			return old + v
		}
		return unsigned[op](old^top, v^top) ^ top
	})
}

func (x *exec) reduceFloat(lane int) {
	v := math.Float32frombits(x.u32(1, lane))
	x.update(lane, func(old uint32) uint32 { return canonical(math.Float32frombits(old) + v) })
}

func (x *exec) reduce64(lane int) {
	v := x.u64(1, lane)
	x.update64(lane, func(old uint64) uint64 { return old + v })
}

// update changes 32 bits of global memory, and writes the old value if there is a result.
func (x *exec) update(lane int, f func(uint32) uint32) {
	if old, ok := x.change(lane, 4, func(old uint64) uint64 { return uint64(f(uint32(old))) }); ok && x.in.Dst.Kind == isa.Reg {
		x.set(lane, uint32(old))
	}
}

func (x *exec) update64(lane int, f func(uint64) uint64) {
	old, ok := x.change(lane, 8, f)
	switch {
	case !ok || x.in.Dst.Kind != isa.Reg:
	case x.in.Dst.Count == 2:
		x.set64(lane, old)
	default:
		x.fail(NotImplemented, lane, 0, "result of a 64-bit sum")
	}
}

func (x *exec) change(lane, size int, f func(uint64) uint64) (uint64, bool) {
	if space, addr := x.space(lane); space != isa.Global {
		x.fail(NotImplemented, lane, addr, "atomic on a window of shared or local memory")
		return 0, false
	}
	_, addr, ok := x.place(lane, size)
	if !ok {
		return 0, false
	}
	old, err := x.b.Launch.Memory.Update(addr, size, f)
	if err != nil {
		x.refused(BadAddress, lane, addr, "atomic", err)
	}
	return old, err == nil
}
