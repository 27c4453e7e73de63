package fermi

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

type value = *compile.Value

// reg is register r, which may be the one that reads zero.
func (x *inst) reg(r uint8) value {
	if r >= isa.Zero {
		return x.b.Const(0)
	}
	return x.b.Reg(r)
}

// u32 is the raw bits of a source.
func (x *inst) u32(src int) value {
	switch v := &x.Src[src]; v.Kind {
	case isa.Reg:
		return x.reg(v.Reg)
	case isa.Imm:
		return x.b.Const(uint32(v.Value))
	case isa.Const:
		return x.b.Bank(v.Bank, v.Value)
	}
	return x.b.Const(0)
}

// pair is two registers as 64 bits.
func (x *inst) pair(r uint8) value {
	if r == isa.Zero {
		return x.b.Const64(0)
	}
	return x.b.Pair(x.reg(r), x.reg(r+1))
}

// u64 is the raw bits of a source of 64 bits.
func (x *inst) u64(src int) value {
	switch v := &x.Src[src]; v.Kind {
	case isa.Reg:
		return x.pair(v.Reg)
	case isa.Const:
		return x.b.Pair(x.b.Bank(v.Bank, v.Value), x.b.Bank(v.Bank, v.Value+4))
	default:
		return x.b.Const64(uint64(v.Value))
	}
}

func (x *inst) has(m isa.Mod) bool { return x.Mod[m] != 0 }

func (x *inst) flushes() bool { return x.has(isa.Ftz) || x.has(isa.Fmz) }

// f32 is a source with its signs, and with denormals flushed if the form says so.
func (x *inst) f32(src int) value {
	v := x.u32(src)
	if x.flushes() {
		v = x.b.Flush(v)
	}
	return x.signs(src, v)
}

// f64 is a source of 64 bits with its signs.
func (x *inst) f64(src int) value { return x.signs(src, x.u64(src)) }

func (x *inst) signs(src int, v value) value {
	if x.Src[src].Abs {
		v = x.b.FAbs(v)
	}
	if x.Src[src].Neg {
		v = x.b.FNeg(v)
	}
	return v
}

// pred is a source that is a predicate.
func (x *inst) pred(src int) value { return x.b.Pred(x.Src[src].Reg, x.Src[src].Not) }

// set writes the result.
func (x *inst) set(v value) { x.setAt(0, v) }

// setAt writes a word of it.
func (x *inst) setAt(word int, v value) {
	if r := int(x.Dst.Reg) + word; x.Dst.Reg != isa.Zero && r < isa.Zero {
		x.b.SetReg(uint8(r), v)
	}
}

// set64 writes two words.
func (x *inst) set64(v value) {
	low, high := x.b.Low(v), x.b.High(v)
	x.setAt(0, low)
	x.setAt(1, high)
}

// setF32 writes a float: saturated, and with denormals flushed.
func (x *inst) setF32(v value) {
	v = x.b.Float(v)
	if x.has(isa.Sat) {
		v = x.b.Saturate(v)
	}
	if x.flushes() {
		v = x.b.Flush(v)
	}
	x.set(v)
}

// setF64 writes a float of 64 bits.
func (x *inst) setF64(v value) { x.set64(x.b.Visible(x.b.Float(v))) }

// setFlags writes the condition code of a result, if asked.
func (x *inst) setFlags(v, carry, overflow value) {
	if !x.has(isa.SetCC) {
		return
	}
	x.b.SetFlag(compile.Zero, x.b.Compare("eq", v, x.b.Const(0)))
	x.b.SetFlag(compile.Sign, x.b.Compare("slt", v, x.b.Const(0)))
	x.b.SetFlag(compile.Carry, carry)
	x.b.SetFlag(compile.Overflow, overflow)
}

// setInt writes a result that has no carry.
func (x *inst) setInt(v value) {
	x.set(v)
	x.setFlags(v, x.b.False(), x.b.False())
}

// nearest reports whether the form rounds to the nearest. Other modes are left to another executor.
func (x *inst) nearest() bool {
	if x.Mod[isa.Round] == isa.RN {
		return true
	}
	x.b.Refuse("directed rounding")
	return false
}
