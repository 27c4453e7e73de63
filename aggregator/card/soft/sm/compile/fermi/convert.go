package fermi

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	meanings[isa.F2F] = (*inst).floatToFloat
	meanings[isa.F2I] = (*inst).floatToInt
	meanings[isa.I2F] = (*inst).intToFloat
	meanings[isa.I2I] = (*inst).intToInt
}

// Float types of isa.DstType and isa.SrcType.
const (
	f16 = 1
	f32 = 2
	f64 = 3
)

// intType splits an integer type into bits and sign.
func intType(t uint8) (bits uint, signed bool) { return 8 << (t & 3), t&4 != 0 }

// roundings are functions of IR, by isa.Round.
var roundings = [...]string{isa.RN: "roundeven", isa.RM: "floor", isa.RP: "ceil", isa.RZ: "trunc"}

// floatSource is the input of a conversion.
func (x *inst) floatSource(size uint8) (v value, width int) {
	if size == f64 {
		return x.f64(1), 64
	}
	return x.f32(1), 32
}

func (x *inst) floatToFloat() {
	from, to, mode := x.Mod[isa.SrcType], x.Mod[isa.DstType], x.Mod[isa.Round]
	if from == f16 || to == f16 {
		x.b.Refuse("16 bits")
		return
	}
	v, width := x.floatSource(from)
	if mode&isa.Integral != 0 {
		mode &^= isa.Integral
		v = x.b.FIntegral(roundings[mode], v)
	} else if mode != isa.RN && width == 64 && to == f32 {
		x.b.Refuse("directed rounding")
		return
	}
	switch {
	case width == 64 && to == f32:
		if mode != isa.RN {
			x.b.Refuse("directed rounding")
			return
		}
		if x.has(isa.Sat) {
			v = x.b.Saturate(v)
		}
		x.setF32(x.b.FNarrow(v))
	case to == f32:
		x.setF32(v)
	default:
		if width == 32 {
			v = x.b.FWiden(v)
		}
		if x.has(isa.Sat) {
			v = x.b.Saturate(v)
		}
		x.setF64(v)
	}
}

// floatToInt clamps to the type. NaN is zero, or the lowest number of 64 bits.
func (x *inst) floatToInt() {
	size := uint8(x.Word >> 23 & 3)
	if size == f16 {
		x.b.Refuse("16 bits")
		return
	}
	bits, signed := intType(x.Mod[isa.DstType])
	v, _ := x.floatSource(size)
	b := x.b
	whole := b.FIntegral(roundings[x.Mod[isa.Round]&3], v)
	switch {
	case bits == 64:
		n := b.ToInt(whole, signed, 64)
		x.set64(b.Select(b.FCompare("uno", v, v), b.Const64(1<<63), n))
	case bits == 32:
		x.set(b.ToInt(whole, signed, 32))
	case signed:
		x.set(x.clamp(b.ToInt(whole, true, 32), -1<<(bits-1), 1<<(bits-1)-1))
	default:
		x.set(x.atMost(b.ToInt(whole, false, 32), 1<<bits-1))
	}
}

func (x *inst) clamp(v value, low, high int32) value {
	b := x.b
	v = b.Select(b.Compare("slt", v, b.Const(uint32(low))), b.Const(uint32(low)), v)
	return b.Select(b.Compare("sgt", v, b.Const(uint32(high))), b.Const(uint32(high)), v)
}

// narrow extends the lowest bits of a value to 32.
func (x *inst) narrow(v value, bits uint, signed bool) value {
	b := x.b
	if bits >= 32 {
		return v
	}
	if !signed {
		return b.And(v, b.Const(1<<bits-1))
	}
	up := b.Const(uint32(32 - bits))
	return b.Sar(b.Shl(v, up), up)
}

// intSource is the input of a conversion, extended, with its signs: of 32 bits if they do for it.
func (x *inst) intSource() (v value, signed, wide bool) {
	b := x.b
	bits, signed := intType(x.Mod[isa.SrcType])
	abs, neg := x.Src[1].Abs, x.Src[1].Neg
	if bits == 64 {
		v = x.u64(1)
	} else {
		part := x.Mod[isa.Part] * uint8(bits)
		v = x.u32(1)
		if part >= 32 {
			v = b.Const(0)
		} else {
			v = b.Shr(v, b.Const(uint32(part)))
		}
		v = x.narrow(v, bits, signed)
		if !abs && !neg {
			return v, signed, false
		}
		v = b.Extend(v, signed)
	}
	if abs {
		v = b.Select(b.Compare("slt", v, b.Const64(0)), b.Sub(b.Const64(0), v), v)
	}
	if neg {
		v = b.Sub(b.Const64(0), v)
	}
	return v, signed || bits < 64, true // a negated value is negative
}

func (x *inst) intToFloat() {
	to := x.Mod[isa.DstType]
	if to == f16 {
		x.b.Refuse("16 bits")
		return
	}
	if !x.nearest() {
		return
	}
	v, signed, _ := x.intSource()
	if to == f64 {
		x.setF64(x.b.ToFloat(v, signed, 64))
		return
	}
	x.setF32(x.b.ToFloat(v, signed, 32))
}

func (x *inst) intToInt() {
	b := x.b
	v, from, wide := x.intSource()
	bits, signed := intType(x.Mod[isa.DstType])
	if x.has(isa.Sat) && bits != 64 {
		if !wide {
			v, wide = b.Extend(v, from), true
		}
		low, high := int64(0), int64(1)<<bits-1
		if signed {
			low, high = -1<<(bits-1), 1<<(bits-1)-1
		}
		l, h := b.Const64(uint64(low)), b.Const64(uint64(high))
		v = b.Select(b.Compare("slt", v, l), l, v)
		v = b.Select(b.Compare("sgt", v, h), h, v)
	}
	if bits == 64 {
		if !wide {
			v = b.Extend(v, from)
		}
		x.set64(v)
		x.setFlags(b.Low(v), b.False(), b.False())
		return
	}
	if wide {
		v = b.Low(v)
	}
	x.setInt(x.narrow(v, bits, signed))
}
