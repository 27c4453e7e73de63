package compile

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// The special function unit's functions, by the steps of package interp, in 64 bits.

// double is a constant.
func (b *Builder) double(v float64) *Value { return b.Const64(math.Float64bits(v)) }

func (b *Builder) polynomial(terms []float64, x *Value) *Value {
	p := b.double(terms[0])
	for _, c := range terms[1:] {
		p = b.FAdd(b.FMul(p, x), b.double(c))
	}
	return p
}

// fsub is a difference.
func (b *Builder) fsub(x, y *Value) *Value { return b.FAdd(x, b.FNeg(y)) }

// clamped is x between two limits. A NaN stays one.
func (b *Builder) clamped(x *Value, limit float64) *Value {
	x = b.Select(b.FCompare("ogt", x, b.double(limit)), b.double(limit), x)
	return b.Select(b.FCompare("olt", x, b.double(-limit)), b.double(-limit), x)
}

// raw is the bits of a float, also of one that is not a number.
func raw(x *Value) *Value {
	v := *x
	v.NaN, v.Min, v.Max = Bits, 0, ones(x.width)
	return &v
}

// asFloat is bits as a float.
func asFloat(x *Value) *Value {
	v := *x
	v.NaN, v.Min, v.Max = Lazy, 0, ones(x.width)
	return &v
}

// Ex2 is 2 to a power of 32 bits.
func (b *Builder) Ex2(x *Value) *Value {
	v := b.clamped(b.FWiden(x), interp.MaxExp2)
	n := b.FIntegral("roundeven", v)
	scale := b.Shl(b.Add(b.ToInt(n, true, 64), b.Const64(1023)), b.Const64(52))
	return b.FNarrow(b.FMul(b.polynomial(interp.Exp2Terms[:], b.fsub(v, n)), asFloat(scale)))
}

// Lg2 is the logarithm to the base 2.
func (b *Builder) Lg2(x *Value) *Value {
	const fraction = 1<<52 - 1
	v := b.FWiden(x)
	bits := raw(v)
	e := b.ToFloat(b.Sub(b.Shr(bits, b.Const64(52)), b.Const64(1023)), true, 64)
	m := asFloat(b.Or(b.And(bits, b.Const64(fraction)), b.Const64(1023<<52)))
	large := b.FCompare("ogt", m, b.double(math.Sqrt2))
	e = b.Select(large, b.FAdd(e, b.double(1)), e)
	m = b.Select(large, b.FMul(m, b.double(0.5)), m)
	s := b.FDiv(b.FAdd(m, b.double(-1)), b.FAdd(m, b.double(1)))
	out := b.FAdd(b.FMul(b.polynomial(interp.Log2Terms[:], b.FMul(s, s)), s), e)
	zero := b.double(0)
	out = b.Select(b.FCompare("oeq", v, zero), b.double(math.Inf(-1)), out)
	out = b.Select(b.FCompare("oeq", v, b.double(math.Inf(1))), v, out)
	return b.FNarrow(b.Select(b.FCompare("uge", v, zero), b.Select(b.FCompare("uno", v, v), v, out), b.double(math.NaN())))
}

// Sin is of radians.
func (b *Builder) Sin(x *Value) *Value { return b.quarter(x, 0) }

// Cos is Sin, a quarter turn later.
func (b *Builder) Cos(x *Value) *Value { return b.quarter(x, 1) }

func (b *Builder) quarter(x *Value, later float64) *Value {
	v := b.FWiden(x)
	n := b.FIntegral("roundeven", b.FMul(v, b.double(interp.TwoOverPi)))
	r := v
	for _, part := range interp.QuarterTurn {
		r = b.fsub(r, b.FMul(n, b.double(part)))
	}
	r = b.clamped(r, 1)
	n = b.FAdd(n, b.double(later))
	n = b.fsub(n, b.FMul(b.double(4), b.FIntegral("floor", b.FMul(n, b.double(0.25)))))
	z := b.FMul(r, r)
	sin := b.FAdd(b.FMul(b.FMul(b.polynomial(interp.SinTerms[:], z), z), r), r)
	odd := b.One(b.FCompare("oeq", n, b.double(1)), b.FCompare("oeq", n, b.double(3)))
	out := b.Select(odd, b.polynomial(interp.CosTerms[:], z), sin)
	return b.FNarrow(b.Select(b.FCompare("oge", n, b.double(2)), b.FNeg(out), out))
}
