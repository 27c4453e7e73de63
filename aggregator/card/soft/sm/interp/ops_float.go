package interp

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, f := range map[isa.Op]func(*exec, int){
		isa.FAdd: (*exec).fadd, isa.FMul: (*exec).fmul, isa.FFma: (*exec).ffma,
		isa.FMinMax: func(x *exec, lane int) {
			x.setF32(lane, float32(minMax(float64(x.f32(0, lane)), float64(x.f32(1, lane)), x.smaller(lane))))
		},
		isa.FSet:  func(x *exec, lane int) { x.setTruth(lane, x.fcompare(lane)) },
		isa.FSetP: func(x *exec, lane int) { x.setTruths(lane, x.fcompare(lane)) },
		isa.FSlct: func(x *exec, lane int) { x.choose(lane, x.holds(order(float64(x.f32(2, lane)), 0))) },
		isa.DAdd:  func(x *exec, lane int) { x.setF64(lane, fma64(1, x.f64(0, lane), x.f64(1, lane), x.in.Mod[isa.Round])) },
		isa.DMul: func(x *exec, lane int) {
			x.setF64(lane, mul64(x.product(x.f64(0, lane)), x.f64(1, lane), x.in.Mod[isa.Round]))
		},
		isa.DFma: func(x *exec, lane int) {
			x.setF64(lane, fma64(x.f64(0, lane), x.f64(1, lane), x.f64(2, lane), x.in.Mod[isa.Round]))
		},
		isa.DMinMax: func(x *exec, lane int) { x.setF64(lane, minMax(x.f64(0, lane), x.f64(1, lane), x.smaller(lane))) },
		isa.DSet:    func(x *exec, lane int) { x.setTruth(lane, x.dcompare(lane)) },
		isa.DSetP:   func(x *exec, lane int) { x.setTruths(lane, x.dcompare(lane)) },

		// The results of range reduction are known to sin, cos and ex2 only: they take the value itself.
		isa.PreSin: func(x *exec, lane int) { x.setF32(lane, x.f32(1, lane)) },
		isa.PreEx2: func(x *exec, lane int) { x.setF32(lane, x.f32(1, lane)) },
		isa.Sin:    approximate(Sin),
		isa.Cos:    approximate(Cos),
		isa.Ex2:    approximate(Ex2),
		isa.Lg2:    approximate(Lg2),
		isa.Rcp:    approximate(func(v float64) float64 { return 1 / v }),
		isa.Rsqrt:  approximate(Rsqrt),
		isa.Rcp64H: approximateHigh(func(v float64) float64 { return 1 / v }),
		isa.Rsqrt64H: approximateHigh(func(v float64) float64 {
			return 1 / math.Sqrt(v)
		}),
	} {
		laneOps[op] = f
	}
}

func (x *exec) fadd(lane int) {
	a, b, mode := float64(x.f32(0, lane)), float64(x.f32(1, lane)), x.in.Mod[isa.Round]
	x.setF32(lane, narrow(zeroSum(AddOdd(a, b), a, b, mode), mode))
}

// scales are the factors of isa.Scale.
var scales = [...]float64{1, 1. / 2, 1. / 4, 1. / 8, 8, 4, 2}

func (x *exec) fmul(lane int) {
	p := x.multiply(x.f32(0, lane), x.f32(1, lane)) * scales[x.in.Mod[isa.Scale]]
	x.setF32(lane, narrow(x.product(p), x.in.Mod[isa.Round]))
}

func (x *exec) ffma(lane int) {
	p, c, mode := x.multiply(x.f32(0, lane), x.f32(1, lane)), float64(x.f32(2, lane)), x.in.Mod[isa.Round]
	x.setF32(lane, narrow(zeroSum(AddOdd(p, c), p, c, mode), mode))
}

// multiply is exact. With fmz, zero times anything is zero.
func (x *exec) multiply(a, b float32) float64 {
	if x.has(isa.Fmz) && (a == 0 || b == 0) {
		return 0
	}
	return float64(a) * float64(b)
}

func (x *exec) product(p float64) float64 {
	if x.has(isa.NegProduct) {
		return -p
	}
	return p
}

// smaller reports whether min or max was asked for.
func (x *exec) smaller(lane int) bool { return x.predicate(&x.in.Src[3])>>lane&1 != 0 }

// order returns the bit of a comparison's condition that stands for the order of two values.
func order(a, b float64) uint8 {
	switch {
	case a < b:
		return 1
	case a == b:
		return 2
	case a > b:
		return 4
	}
	return 8
}

// holds reports whether the condition of the comparison includes an order.
func (x *exec) holds(order uint8) bool { return x.in.Mod[isa.Cmp]&order != 0 }

func (x *exec) fcompare(lane int) bool {
	return x.holds(order(float64(x.f32(0, lane)), float64(x.f32(1, lane))))
}

func (x *exec) dcompare(lane int) bool { return x.holds(order(x.f64(0, lane), x.f64(1, lane))) }

// combine joins a truth with the predicate input.
func (x *exec) combine(lane int, v bool) bool {
	p := x.predicate(&x.in.Src[3])>>lane&1 != 0
	return logic(x.in.Mod[isa.Combine], v, p)
}

func logic(op uint8, a, b bool) bool {
	switch op {
	case isa.CombineAnd:
		return a && b
	case isa.CombineOr:
		return a || b
	}
	return a != b
}

// setTruth writes a truth as all ones or 1.0.
func (x *exec) setTruth(lane int, v bool) {
	switch {
	case !x.combine(lane, v):
		x.set(lane, 0)
	case x.has(isa.FloatOut):
		x.set(lane, math.Float32bits(1))
	default:
		x.set(lane, ^uint32(0))
	}
}

// setTruths writes a truth and its opposite, each combined, to two predicates.
func (x *exec) setTruths(lane int, v bool) {
	yes, no := x.combine(lane, v), x.combine(lane, !v)
	x.setPred(0, lane, yes)
	x.setPred(1, lane, no)
}

// choose writes the first source if a condition holds, else the second.
func (x *exec) choose(lane int, first bool) {
	src := 1
	if first {
		src = 0
	}
	x.set(lane, x.u32(src, lane))
}

// approximate makes an operation of the special function unit. The hardware's last bits are not
// known; denormals are zero to it.
func approximate(f func(float64) float64) func(*exec, int) {
	return func(x *exec, lane int) {
		in := math.Float32frombits(flush(math.Float32bits(x.f32(0, lane))))
		v := float32(f(float64(in)))
		x.setF32(lane, math.Float32frombits(flush(math.Float32bits(v))))
	}
}

// approximateHigh works on the upper halves of doubles.
func approximateHigh(f func(float64) float64) func(*exec, int) {
	return func(x *exec, lane int) {
		high := math.Float32bits(x.f32(0, lane)) // the signs are in the same bits
		if high&0x7ff00000 == 0 {
			high &= 1 << 31
		}
		v := canonical64(f(math.Float64frombits(uint64(high) << 32)))
		if v&0x7ff0000000000000 == 0 {
			v &= 1 << 63
		}
		x.set(lane, uint32(v>>32))
	}
}
