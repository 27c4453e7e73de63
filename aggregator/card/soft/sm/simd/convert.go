package simd

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Float types of isa.DstType and isa.SrcType.
const (
	f32 = 2
	f64 = 3
)

func init() {
	plans[isa.I2F] = planIntToFloat
	plans[isa.F2I] = planFloatToInt
	plans[isa.F2F] = planFloatToFloat
	plans[isa.I2I] = planIntToInt
}

// intSource makes a function that extends an input of less than 64 bits, and applies its signs.
func intSource(o *operation) (f func(uint32) int64, ok bool) {
	t := o.Mod[isa.SrcType]
	size, signed, v := uint(8)<<(t&3), t&4 != 0, &o.Src[1]
	if size == 64 {
		return nil, false
	}
	part, abs, neg := uint(o.Mod[isa.Part])*size, v.Abs, v.Neg
	return func(bits uint32) int64 {
		n := int64(uint64(bits>>part) << (64 - size) >> (64 - size))
		if signed {
			n = n << (64 - size) >> (64 - size)
		}
		if abs && n < 0 {
			n = -n
		}
		if neg {
			n = -n
		}
		return n
	}, true
}

func planIntToFloat(o *operation) bool {
	from, ok := intSource(o)
	if !ok || o.Mod[isa.Round] != isa.RN {
		return false
	}
	switch v := &o.Src[1]; o.Mod[isa.DstType] {
	case f32:
		if t := o.Mod[isa.SrcType]; t&3 == 2 && o.Mod[isa.Part] == 0 && !v.Abs && !v.Neg {
			return o.two([...]rowOp{2: fast.fromUint, 6: fast.fromInt}[t])
		}
		return o.lanewise(func(_, b, _ uint32) uint32 { return math.Float32bits(float32(from(b))) })
	case f64:
		return o.widening(func(b uint32) float64 { return float64(from(b)) })
	}
	return false
}

// widening computes 64 bits of the second source's 32.
func (o *operation) widening(f func(b uint32) float64) bool {
	o.cost = costPage
	o.run = func(x *Executor, o *operation) bool {
		b := x.source(&o.src[1])
		if b == nil {
			return false
		}
		low, high := &x.scratch[0], &x.scratch[1]
		for i := range low {
			setDouble(low, high, i, f(b[i]))
		}
		x.mergeWide(o.dst, low, high)
		return true
	}
	return true
}

// narrowing computes 32 bits of the second source's 64.
func (o *operation) narrowing(f func(float64) uint32) bool {
	o.wide()
	o.run = func(x *Executor, o *operation) bool {
		b := x.doubles(o, 1)
		if b.low == nil {
			return false
		}
		d := &x.scratch[0]
		for i := range d {
			d[i] = f(b.at(i))
		}
		x.merge(o.dst, d)
		return true
	}
	return true
}

// integral returns the function that rounds to an integer.
func integral(mode uint8) func(float64) float64 {
	return [...]func(float64) float64{isa.RN: math.RoundToEven, isa.RM: math.Floor, isa.RP: math.Ceil, isa.RZ: math.Trunc}[mode]
}

// planFloatToInt serves results of 32 bits. They are clamped; NaN is zero.
func planFloatToInt(o *operation) bool {
	o.float(1)
	low, high := float64(0), float64(math.MaxUint32)
	switch o.Mod[isa.DstType] {
	case 2:
	case 6:
		low, high = math.MinInt32, math.MaxInt32
	default:
		return false
	}
	round, p := integral(o.Mod[isa.Round]), &o.params
	clamp := func(v float64) uint32 {
		if v != v {
			return 0
		}
		return uint32(int64(round(max(low, min(v, high)))))
	}
	switch o.Word >> 23 & 3 { // the type is in the row
	case f32:
		return o.lanewise(func(_, b, _ uint32) uint32 { return clamp(float64(p.float(1, b))) })
	case f64:
		return o.narrowing(clamp)
	}
	return false
}

func planFloatToFloat(o *operation) bool {
	mode := o.Mod[isa.Round]
	o.float(1)
	p, from, to := &o.params, o.Mod[isa.SrcType], o.Mod[isa.DstType]
	round := func(v float64) float64 { return v }
	if mode&isa.Integral != 0 {
		round = integral(mode &^ isa.Integral)
	} else if mode != isa.RN && from == f64 {
		return false
	}
	switch {
	case from == f32 && to == f32:
		return o.lanewise(func(_, b, _ uint32) uint32 { return p.finish(float32(round(float64(p.float(1, b))))) })
	case from == f32 && to == f64 && !p.sat:
		return o.widening(func(b uint32) float64 { return round(float64(p.float(1, b))) })
	case from == f64 && to == f32:
		return o.narrowing(func(v float64) uint32 { return p.finish(float32(round(v))) })
	}
	return false
}

func planIntToInt(o *operation) bool {
	from, ok := intSource(o)
	t := o.Mod[isa.DstType]
	size, signed := uint(8)<<(t&3), t&4 != 0
	if !ok || size == 64 || o.Mod[isa.SetCC] != 0 {
		return false
	}
	low, high := int64(0), int64(1)<<size-1
	if signed {
		low, high = -1<<(size-1), 1<<(size-1)-1
	}
	sat := o.Mod[isa.Sat] != 0
	if v := &o.Src[1]; !sat && !v.Abs && !v.Neg {
		t := o.Mod[isa.SrcType]
		length, extend := uint(8)<<(t&3), t&4 != 0
		pos := uint(o.Mod[isa.Part]) * length
		if length >= size {
			length, extend = size, signed
		}
		if !extend || signed || size == 32 {
			return o.field(1, uint32(pos), uint32(length), extend)
		}
	}
	return o.lanewise(func(_, b, _ uint32) uint32 {
		v := from(b)
		if sat {
			v = max(low, min(v, high))
		}
		if signed {
			return uint32(v << (64 - size) >> (64 - size))
		}
		return uint32(uint64(v) << (64 - size) >> (64 - size))
	})
}
