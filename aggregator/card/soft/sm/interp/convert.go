package interp

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	laneOps[isa.F2F] = (*exec).floatToFloat
	laneOps[isa.F2I] = (*exec).floatToInt
	laneOps[isa.I2F] = (*exec).intToFloat
	laneOps[isa.I2I] = (*exec).intToInt
	setsFlags[isa.I2I] = true
}

// Float types of isa.DstType and isa.SrcType.
const (
	f16 = 1
	f32 = 2
	f64 = 3
)

// intType splits an integer type into bits and sign.
func intType(t uint8) (bits uint, signed bool) { return 8 << (t & 3), t&4 != 0 }

// floatSource returns the input of a conversion, with its signs.
func (x *exec) floatSource(lane int) float64 {
	switch x.sourceSize() {
	case f16:
		h := uint16(x.u32(1, lane) >> (16 * x.in.Mod[isa.Part]))
		if x.in.Src[1].Abs {
			h &^= 1 << 15
		}
		if x.in.Src[1].Neg {
			h ^= 1 << 15
		}
		return half(h)
	case f32:
		return float64(x.f32(1, lane))
	}
	return x.f64(1, lane)
}

// sourceSize is the type of a float input. Conversions to integers have it in their row.
func (x *exec) sourceSize() uint8 {
	if x.in.Op == isa.F2I {
		return uint8(x.in.Word >> 23 & 3)
	}
	return x.in.Mod[isa.SrcType]
}

func (x *exec) setFloat(lane int, v float64, mode uint8) {
	switch x.in.Mod[isa.DstType] {
	case f16:
		x.set(lane, uint32(toHalf(v, mode)))
	case f32:
		x.setF32(lane, narrow(v, mode))
	case f64:
		x.setF64(lane, v)
	}
}

func (x *exec) floatToFloat(lane int) {
	v, mode := x.floatSource(lane), x.in.Mod[isa.Round]
	if mode&isa.Integral != 0 {
		mode &^= isa.Integral
		v = integral(v, mode)
	}
	if x.has(isa.Sat) {
		v = saturate(v)
	}
	x.setFloat(lane, v, mode)
}

// floatToInt clamps to the type. NaN is zero, or the lowest number of 64 bits.
func (x *exec) floatToInt(lane int) {
	bits, signed := intType(x.in.Mod[isa.DstType])
	v := integral(x.floatSource(lane), x.in.Mod[isa.Round])
	var n uint64
	switch {
	case v != v && bits == 64:
		n = 1 << 63
	case v != v:
	case signed:
		limit := math.Ldexp(1, int(bits)-1)
		switch {
		case v >= limit:
			n = 1<<(bits-1) - 1
		case v < -limit:
			n = -(1 << (bits - 1)) & math.MaxUint64
		default:
			n = uint64(int64(v))
		}
	case v >= math.Ldexp(1, int(bits)):
		n = math.MaxUint64 >> (64 - bits)
	case v > 0:
		n = uint64(v)
	}
	x.setSized(lane, n, bits)
}

// intSource returns the input of a conversion, extended, with its signs.
func (x *exec) intSource(lane int) uint64 {
	bits, signed := intType(x.in.Mod[isa.SrcType])
	var v uint64
	if bits == 64 {
		v = x.u64(1, lane)
	} else {
		v = extend(uint64(x.u32(1, lane)>>(x.in.Mod[isa.Part]*uint8(bits))), bits, signed)
	}
	if x.in.Src[1].Abs && int64(v) < 0 {
		v = -v
	}
	if x.in.Src[1].Neg {
		v = -v
	}
	return v
}

func extend(v uint64, bits uint, signed bool) uint64 {
	if signed {
		return uint64(int64(v<<(64-bits)) >> (64 - bits))
	}
	return v << (64 - bits) >> (64 - bits)
}

func (x *exec) intToFloat(lane int) {
	bits, signed := intType(x.in.Mod[isa.SrcType])
	v, mode := x.intSource(lane), x.in.Mod[isa.Round]
	signed = signed || bits < 64 // a negated value is negative
	x.setFloat(lane, fromInt(v, signed, mode, x.in.Mod[isa.DstType] == f32), mode)
}

func (x *exec) intToInt(lane int) {
	bits, signed := intType(x.in.Mod[isa.DstType])
	v := x.intSource(lane)
	if x.has(isa.Sat) {
		v = clampInt(int64(v), bits, signed)
	}
	v = extend(v, bits, signed)
	x.setSized(lane, v, bits)
	x.setFlags(lane, uint32(v), false, false)
}

// clampInt clamps a number of at most 33 bits to a type.
func clampInt(v int64, bits uint, signed bool) uint64 {
	switch {
	case bits == 64:
		return uint64(v)
	case signed:
		return uint64(min(max(v, -1<<(bits-1)), 1<<(bits-1)-1))
	}
	return uint64(min(max(v, 0), 1<<bits-1))
}

// setSized writes an integer: one register, or two for 64 bits.
func (x *exec) setSized(lane int, v uint64, bits uint) {
	if bits == 64 {
		x.set64(lane, v)
		return
	}
	x.set(lane, uint32(v))
}
