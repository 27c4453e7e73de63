package fermi

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	for op, f := range map[isa.Op]func(*inst){
		isa.FAdd: func(x *inst) {
			if x.nearest() {
				x.setF32(x.b.FAdd(x.f32(0), x.f32(1)))
			}
		},
		isa.FMul: (*inst).fmul,
		isa.FFma: (*inst).ffma,
		isa.FMinMax: func(x *inst) {
			x.setF32(x.either(func(smaller bool) value { return x.b.FMinMax(x.f32(0), x.f32(1), smaller) }))
		},
		isa.FSet:  func(x *inst) { x.setTruth(x.fcompare(x.f32(0), x.f32(1))) },
		isa.FSetP: func(x *inst) { x.setTruths(x.fcompare(x.f32(0), x.f32(1))) },
		isa.FSlct: func(x *inst) {
			x.set(x.b.Select(x.fcompare(x.f32(2), x.b.Const(0)), x.u32(0), x.u32(1)))
		},
		isa.DAdd: func(x *inst) {
			if x.nearest() {
				x.setF64(x.b.FAdd(x.f64(0), x.f64(1)))
			}
		},
		isa.DMul: func(x *inst) {
			if x.nearest() {
				x.setF64(x.b.FMul(x.negated(x.f64(0)), x.f64(1)))
			}
		},
		isa.DFma: func(x *inst) {
			if x.nearest() {
				x.setF64(x.b.FFma(x.f64(0), x.f64(1), x.f64(2)))
			}
		},
		isa.DMinMax: func(x *inst) {
			x.setF64(x.either(func(smaller bool) value { return x.b.FMinMax(x.f64(0), x.f64(1), smaller) }))
		},
		isa.DSet:   func(x *inst) { x.setTruth(x.fcompare(x.f64(0), x.f64(1))) },
		isa.DSetP:  func(x *inst) { x.setTruths(x.fcompare(x.f64(0), x.f64(1))) },
		isa.PreSin: func(x *inst) { x.setF32(x.f32(1)) },
		isa.PreEx2: func(x *inst) { x.setF32(x.f32(1)) },
		// One over a float, rounded twice, is what it is rounded once: 53 bits are more than twice 24.
		isa.Rcp: func(x *inst) { x.approximate(func(v value) value { return x.b.FDiv(x.b.Const(0x3f800000), v) }) },
		isa.Rsqrt: func(x *inst) {
			x.approximate(func(v value) value { return x.b.FDiv(x.b.Const(0x3f800000), x.b.FSqrt(v)) })
		},
		isa.Sin: func(x *inst) { x.approximate(x.b.Sin) },
		isa.Cos: func(x *inst) { x.approximate(x.b.Cos) },
		isa.Ex2: func(x *inst) { x.approximate(x.b.Ex2) },
		isa.Lg2: func(x *inst) { x.approximate(x.b.Lg2) },
	} {
		meanings[op] = f
	}
}

// either is one of two results, as the predicate says.
func (x *inst) either(of func(smaller bool) value) value {
	p := x.pred(3)
	return x.b.Select(p, of(true), of(false))
}

func (x *inst) negated(v value) value {
	if x.has(isa.NegProduct) {
		return x.b.FNeg(v)
	}
	return v
}

// anyZero reports whether a factor is zero, which with fmz makes the product zero.
func (x *inst) anyZero(p, q value) value {
	zero := x.b.Const(0)
	return x.b.One(x.b.FCompare("oeq", p, zero), x.b.FCompare("oeq", q, zero))
}

// scales are the factors of isa.Scale, as doubles.
var scales = [...]uint64{0, 0x3fe0000000000000, 0x3fd0000000000000, 0x3fc0000000000000, 0x4020000000000000, 0x4010000000000000, 0x4000000000000000}

func (x *inst) fmul() {
	if !x.nearest() {
		return
	}
	b, p, q := x.b, x.f32(0), x.f32(1)
	var v value
	if s := x.Mod[isa.Scale]; s == 0 {
		v = b.FMul(p, q)
	} else { // exact in 64 bits, so that it is rounded once
		v = b.FNarrow(b.FMul(b.FMul(b.FWiden(p), b.FWiden(q)), b.Const64(scales[s])))
	}
	if x.has(isa.Fmz) {
		v = b.Select(x.anyZero(p, q), b.Const(0), v)
	}
	x.setF32(x.negated(v))
}

func (x *inst) ffma() {
	if !x.nearest() {
		return
	}
	b, p, q, c := x.b, x.f32(0), x.f32(1), x.f32(2)
	v := b.FFma(p, q, c)
	if x.has(isa.Fmz) {
		v = b.Select(x.anyZero(p, q), b.FAdd(b.Const(0), c), v)
	}
	x.setF32(v)
}

// conditions of IR, by isa.Cmp.
var conditions = [...]string{1: "olt", "oeq", "ole", "ogt", "one", "oge", "ord", "uno", "ult", "ueq", "ule", "ugt", "une", "uge"}

func (x *inst) fcompare(p, q value) value {
	switch c := x.Mod[isa.Cmp] & 15; c {
	case 0:
		return x.b.False()
	case 15:
		return x.b.True()
	default:
		return x.b.FCompare(conditions[c], p, q)
	}
}

// approximate is an operation of the special function unit, to which denormals are zero.
func (x *inst) approximate(f func(value) value) {
	x.setF32(x.b.Flush(f(x.b.Flush(x.f32(0)))))
}
