package simd

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	plans[isa.FAdd] = func(o *operation) bool { return o.float(0, 1) && o.two(fast.addFloat) }
	plans[isa.FMul] = func(o *operation) bool {
		if !o.float(0, 1) || o.Mod[isa.Scale] != 0 || o.Mod[isa.Fmz] != 0 {
			return false
		}
		if o.Mod[isa.NegProduct] != 0 {
			o.params.xor[0] ^= signBit
		}
		return o.two(fast.mulFloat)
	}
	plans[isa.FFma] = func(o *operation) bool { return o.float(0, 1, 2) && o.Mod[isa.Fmz] == 0 && o.three(fast.fma) }
	plans[isa.FMinMax] = func(o *operation) bool {
		smaller, known := o.constantTruth()
		return known && o.float(0, 1) && o.two([...]rowOp{fast.maxFloat, fast.minFloat}[smaller])
	}
	for op, f := range map[isa.Op]func(float64) float64{
		isa.Sin: interp.Sin, isa.Cos: interp.Cos, isa.Ex2: interp.Ex2, isa.Lg2: interp.Lg2, isa.Rsqrt: interp.Rsqrt,
	} {
		plans[op] = func(o *operation) bool {
			o.float(0)
			o.params.ftz = true
			p := &o.params
			return o.lanewise(func(a, _, _ uint32) uint32 { return p.finish(float32(f(float64(p.float(0, a))))) })
		}
	}
	plans[isa.Rcp] = func(o *operation) bool {
		o.float(0)
		o.params.ftz = true
		return o.two(fast.rcp)
	}
	for _, op := range []isa.Op{isa.PreSin, isa.PreEx2} {
		plans[op] = func(o *operation) bool {
			o.float(1)
			p := &o.params
			return o.lanewise(func(_, b, _ uint32) uint32 { return p.finish(p.float(1, b)) })
		}
	}
}

func (o *operation) flushes() bool { return o.Mod[isa.Ftz] != 0 || o.Mod[isa.Fmz] != 0 }

// float notes the signs of sources, and what happens to results. It reports whether these are
// rounded to the nearest.
func (o *operation) float(sources ...int) bool {
	o.signs(sources...)
	o.params.sat = o.Mod[isa.Sat] != 0
	return o.Mod[isa.Round] == isa.RN
}

// signs notes the signs of sources, and whether denormals are zero.
func (o *operation) signs(sources ...int) {
	for _, i := range sources {
		if o.Src[i].Abs {
			o.params.and[i] = ^uint32(signBit)
		}
		if o.Src[i].Neg {
			o.params.xor[i] = signBit
		}
	}
	o.params.ftz = o.flushes()
}
