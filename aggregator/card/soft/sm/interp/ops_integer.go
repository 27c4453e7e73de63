package interp

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, f := range map[isa.Op]func(*exec, int){
		isa.IAdd:    func(x *exec, lane int) { x.add(lane, x.u32(0, lane), x.u32(1, lane)) },
		isa.IShlAdd: func(x *exec, lane int) { x.add(lane, x.u32(0, lane)<<(x.u32(2, lane)&31), x.u32(1, lane)) },
		isa.IMul:    func(x *exec, lane int) { x.setInt(lane, x.half(x.multiplyInts(lane))) },
		isa.IMad:    func(x *exec, lane int) { x.add(lane, x.half(x.multiplyInts(lane)), x.u32(2, lane)) },
		isa.ISad:    (*exec).sad,
		isa.IMinMax: (*exec).iminmax,
		isa.ISet:    func(x *exec, lane int) { x.setTruth(lane, x.icompare(lane)) },
		isa.ISetP:   func(x *exec, lane int) { x.setTruths(lane, x.icompare(lane)) },
		isa.ISlct:   func(x *exec, lane int) { x.choose(lane, x.holds(x.intOrder(x.u32(2, lane), 0))) },
		isa.Shl:     (*exec).shl,
		isa.Shr:     (*exec).shr,
		isa.Logical: (*exec).logical,
		isa.Insert:  (*exec).insert,
		isa.Extract: (*exec).extract,
		isa.FindBit: (*exec).findBit,
		isa.PopCount: func(x *exec, lane int) {
			x.set(lane, uint32(bits.OnesCount32(x.inverted(0, lane)&x.inverted(1, lane))))
		},
		isa.Permute: (*exec).permute,
		isa.Mov: func(x *exec, lane int) {
			if x.in.Mod[isa.Lanes]>>(lane&3)&1 != 0 {
				x.set(lane, x.u32(1, lane))
			}
		},
		isa.Selp:       func(x *exec, lane int) { x.choose(lane, x.smaller(lane)) },
		isa.PSet:       func(x *exec, lane int) { x.setTruth(lane, x.psets(lane)) },
		isa.PSetP:      func(x *exec, lane int) { x.setTruths(lane, x.psets(lane)) },
		isa.MovSpecial: (*exec).movSpecial,
	} {
		laneOps[op] = f
	}
	for _, op := range []isa.Op{isa.IAdd, isa.IShlAdd, isa.IMul, isa.IMad, isa.IMinMax, isa.Logical} {
		setsFlags[op] = true
	}
	for _, op := range []isa.Op{isa.IAdd, isa.IMad, isa.IMinMax, isa.ISet, isa.ISetP} {
		usesFlags[op] = true
	}
}

// setInt writes a result and, if asked, its zero and sign flags.
func (x *exec) setInt(lane int, v uint32) {
	x.set(lane, v)
	x.setFlags(lane, v, false, false)
}

func (x *exec) setFlags(lane int, v uint32, carry, overflow bool) {
	if !x.has(isa.SetCC) || x.fault != nil {
		return
	}
	f := &x.w.Flags
	setBit(&f.Zero, lane, v == 0)
	setBit(&f.Sign, lane, v>>31 != 0)
	setBit(&f.Carry, lane, carry)
	setBit(&f.Overflow, lane, overflow)
}

// add adds or subtracts. A difference is the sum with the inverted value and a carry of one,
// so the carry flag is set if nothing was borrowed.
func (x *exec) add(lane int, a, b uint32) {
	carry := uint32(0)
	switch x.in.Mod[isa.Sum] {
	case isa.SumSub:
		b, carry = ^b, 1
	case isa.SumSubR:
		a, carry = ^a, 1
	case isa.SumPlusOne:
		carry = 1
	}
	if x.has(isa.UseCC) {
		carry = x.w.Flags.Carry >> lane & 1
	}
	sum, out := bits.Add32(a, b, carry)
	overflow := (a^sum)&(b^sum)>>31 != 0
	if x.has(isa.Sat) && overflow {
		sum = 1<<31 - 1 + a>>31
	}
	x.set(lane, sum)
	x.setFlags(lane, sum, out != 0, overflow)
}

// widen extends a value of 32 bits as its type says.
func widen(v uint32, signed bool) uint64 {
	if signed {
		return uint64(int64(int32(v)))
	}
	return uint64(v)
}

func (x *exec) multiplyInts(lane int) uint64 {
	return widen(x.u32(0, lane), x.has(isa.SignedA)) * widen(x.u32(1, lane), x.has(isa.SignedB))
}

func (x *exec) half(p uint64) uint32 {
	if x.has(isa.High) {
		return uint32(p >> 32)
	}
	return uint32(p)
}

func (x *exec) sad(lane int) {
	a, b := x.u32(0, lane), x.u32(1, lane)
	d := a - b
	if x.intOrder(a, b) == 1 {
		d = b - a
	}
	x.set(lane, d+x.u32(2, lane))
}

// intOrder is order for integers of the form's type.
func (x *exec) intOrder(a, b uint32) uint8 {
	if x.has(isa.Signed) {
		a, b = a^1<<31, b^1<<31
	}
	return order(float64(a), float64(b))
}

// icompare compares. With the condition code it compares the upper halves of wide integers
// whose lower halves were subtracted before: the carry says that nothing was borrowed.
func (x *exec) icompare(lane int) bool {
	o := x.intOrder(x.u32(0, lane), x.u32(1, lane))
	if x.has(isa.UseCC) && o == 2 {
		f := &x.w.Flags
		switch {
		case f.Carry>>lane&1 == 0:
			o = 1
		case f.Zero>>lane&1 == 0:
			o = 4
		}
	}
	return x.holds(o)
}

// iminmax also works on wide integers, from their highest words down. A word leaves in the flags
// whether the numbers are equal so far (zero), and whether the first is less (sign).
func (x *exec) iminmax(lane int) {
	a, b, chain := x.u32(0, lane), x.u32(1, lane), x.in.Mod[isa.Chain]
	var o uint8
	switch f := &x.w.Flags; {
	case chain == isa.ChainNone || chain == isa.ChainTop:
		o = x.intOrder(a, b)
	case f.Zero>>lane&1 != 0:
		o = order(float64(a), float64(b))
	case f.Sign>>lane&1 != 0:
		o = 1
	default:
		o = 4
	}
	if (o == 1) == x.smaller(lane) {
		x.set(lane, a)
	} else {
		x.set(lane, b)
	}
	if x.has(isa.SetCC) && x.fault == nil {
		setBit(&x.w.Flags.Zero, lane, o == 2)
		setBit(&x.w.Flags.Sign, lane, o == 1)
	}
}

// amount returns how far to shift: at most 32, or modulo 32.
func (x *exec) amount(lane int) uint32 {
	n := x.u32(1, lane)
	if x.has(isa.Wrap) {
		return n & 31
	}
	return min(n, 32)
}

func (x *exec) shl(lane int) { x.set(lane, uint32(uint64(x.u32(0, lane))<<x.amount(lane))) }

func (x *exec) shr(lane int) {
	v := x.u32(0, lane)
	if x.has(isa.Reverse) {
		v = bits.Reverse32(v)
	}
	x.set(lane, uint32(int64(widen(v, x.has(isa.Signed)))>>x.amount(lane)))
}

// inverted returns a source with its "not".
func (x *exec) inverted(src, lane int) uint32 {
	if x.in.Src[src].Not {
		return ^x.u32(src, lane)
	}
	return x.u32(src, lane)
}

func (x *exec) logical(lane int) {
	a, b := x.inverted(0, lane), x.inverted(1, lane)
	x.setInt(lane, [...]uint32{isa.LogicAnd: a & b, isa.LogicOr: a | b, isa.LogicXor: a ^ b, isa.LogicB: b}[x.in.Mod[isa.Logic]])
}

// bitfield splits a descriptor: position in its lowest byte, length in the next.
func bitfield(d uint32) (pos, length uint32) { return d & 0xff, d >> 8 & 0xff }

func (x *exec) insert(lane int) {
	pos, length := bitfield(x.u32(1, lane))
	mask := uint32((uint64(1)<<min(length, 32) - 1) << min(pos, 32))
	x.set(lane, uint32(uint64(x.u32(0, lane))<<min(pos, 32))&mask|x.u32(2, lane)&^mask)
}

func (x *exec) extract(lane int) {
	v := x.u32(0, lane)
	if x.has(isa.Reverse) {
		v = bits.Reverse32(v)
	}
	pos, length := bitfield(x.u32(1, lane))
	if length == 0 {
		x.setInt(lane, 0)
		return
	}
	wide := int64(widen(v, x.has(isa.Signed)))
	shifted := wide >> min(pos, 32)
	if length < 32 {
		shifted &= 1<<length - 1
		if top := min(pos+length-1, 31); x.has(isa.Signed) && v>>top&1 != 0 {
			shifted |= -1 << length
		}
	}
	x.setInt(lane, uint32(shifted))
}

// findBit returns the place of the highest set bit, or of the highest that differs from the
// sign; -1 if there is none.
func (x *exec) findBit(lane int) {
	v := x.inverted(1, lane)
	if x.has(isa.Signed) && v>>31 != 0 {
		v = ^v
	}
	n := uint32(bits.Len32(v)) - 1
	if x.has(isa.Amount) && v != 0 {
		n = 31 - n
	}
	x.set(lane, n)
}

// permute picks four of the eight bytes of the third and first sources.
func (x *exec) permute(lane int) {
	bytes := uint64(x.u32(0, lane)) | uint64(x.u32(2, lane))<<32
	sel := x.u32(1, lane)
	var out uint32
	for i := range uint32(4) {
		s := sel & 3
		switch x.in.Mod[isa.Select] {
		case 0:
			s = sel >> (4 * i) & 15
		case 1: // f4e: forward
			s += i
		case 2: // b4e: backward
			s = (s - i) & 7
		case 3: // rc8: one byte
		case 4: // ecl: not left of the byte
			s = max(s, i)
		case 5: // ecr: not right of it
			s = min(s, i)
		case 6: // rc16: one half
			s = s&1<<1 | i&1
		}
		b := uint32(bytes>>(8*(s&7))) & 0xff
		if s&8 != 0 { // the sign of the byte
			b = uint32(int32(int8(b))>>7) & 0xff
		}
		out |= b << (8 * i)
	}
	x.set(lane, out)
}

// psets combines the two predicates of a set.
func (x *exec) psets(lane int) bool {
	a, b := x.predicate(&x.in.Src[0])>>lane&1 != 0, x.predicate(&x.in.Src[1])>>lane&1 != 0
	return logic(x.in.Mod[isa.Combine2], a, b)
}
