package fermi

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	for op, f := range map[isa.Op]func(*inst){
		isa.Shl: func(x *inst) {
			v, n := x.u32(0), x.u32(1)
			x.set(x.shifted(n, func(n value) value { return x.b.Shl(v, n) }))
		},
		isa.Shr:      (*inst).shr,
		isa.Logical:  (*inst).logical,
		isa.Insert:   (*inst).insert,
		isa.Extract:  (*inst).extract,
		isa.FindBit:  (*inst).findBit,
		isa.PopCount: func(x *inst) { x.set(x.b.PopCount(x.b.And(x.inverted(0), x.inverted(1)))) },
	} {
		meanings[op] = f
	}
}

// shifted shifts by less than 32, or by a number modulo 32. By more, nothing is left.
func (x *inst) shifted(n value, shift func(n value) value) value {
	v := shift(x.b.And(n, x.b.Const(31)))
	if x.has(isa.Wrap) {
		return v
	}
	return x.b.Select(x.b.Compare("ult", n, x.b.Const(32)), v, x.b.Const(0))
}

// atMost clamps a number.
func (x *inst) atMost(n value, limit uint32) value {
	return x.b.Select(x.b.Compare("ult", n, x.b.Const(limit)), n, x.b.Const(limit))
}

func (x *inst) shr() {
	v, n := x.reversed(), x.u32(1)
	switch {
	case !x.has(isa.Signed):
		x.set(x.shifted(n, func(n value) value { return x.b.Shr(v, n) }))
	case x.has(isa.Wrap):
		x.set(x.b.Sar(v, x.b.And(n, x.b.Const(31))))
	default:
		x.set(x.b.Sar(v, x.atMost(n, 31)))
	}
}

func (x *inst) reversed() value {
	if x.has(isa.Reverse) {
		return x.b.Reverse(x.u32(0))
	}
	return x.u32(0)
}

// inverted is a source with its "not".
func (x *inst) inverted(src int) value {
	if x.Src[src].Not {
		return x.b.Not(x.u32(src))
	}
	return x.u32(src)
}

func (x *inst) logical() {
	p, q := x.inverted(0), x.inverted(1)
	switch x.Mod[isa.Logic] {
	case isa.LogicAnd:
		p = x.b.And(p, q)
	case isa.LogicOr:
		p = x.b.Or(p, q)
	case isa.LogicXor:
		p = x.b.Xor(p, q)
	default:
		p = q
	}
	x.setInt(p)
}

// bitfield splits a descriptor: position in its lowest byte, length in the next.
func (x *inst) bitfield(d value) (pos, length value) {
	return x.b.And(d, x.b.Const(0xff)), x.b.And(x.b.Shr(d, x.b.Const(8)), x.b.Const(0xff))
}

// low is a mask of the lowest n bits, at most 32.
func (x *inst) low(n value) value {
	one := x.b.Sub(x.b.Shl(x.b.Const(1), x.b.And(n, x.b.Const(31))), x.b.Const(1))
	return x.b.Select(x.b.Compare("ult", n, x.b.Const(32)), one, x.b.Const(1<<32-1))
}

func (x *inst) insert() {
	b := x.b
	pos, length := x.bitfield(x.u32(1))
	up := func(v value) value {
		return b.Select(b.Compare("ult", pos, b.Const(32)), b.Shl(v, b.And(pos, b.Const(31))), b.Const(0))
	}
	mask := up(x.low(length))
	x.set(b.Or(b.And(up(x.u32(0)), mask), b.And(x.u32(2), b.Not(mask))))
}

func (x *inst) extract() {
	b, v := x.b, x.reversed()
	if d := &x.Src[1]; d.Kind == isa.Imm && !x.has(isa.Signed) {
		if part := b.Field(v, uint64(d.Value)&0xff, uint64(d.Value)>>8&0xff); part != nil {
			x.setInt(part)
			return
		}
	}
	pos, length := x.bitfield(x.u32(1))
	mask := x.low(length)
	if !x.has(isa.Signed) {
		down := b.Select(b.Compare("ult", pos, b.Const(32)), b.Shr(v, b.And(pos, b.Const(31))), b.Const(0))
		x.setInt(b.And(down, mask)) // of no bits the mask is zero
		return
	}
	down := b.And(b.Sar(v, x.atMost(pos, 31)), mask)
	top := x.atMost(b.Sub(b.Add(pos, length), b.Const(1)), 31)
	negative := b.Compare("ne", b.And(b.Shr(v, top), b.Const(1)), b.Const(0))
	out := b.Select(negative, b.Or(down, b.Not(mask)), down)
	x.setInt(b.Select(b.Compare("eq", length, b.Const(0)), b.Const(0), out))
}

// findBit returns the place of the highest set bit, or of the highest that differs from the sign; -1 if there
// is none.
func (x *inst) findBit() {
	b, v := x.b, x.inverted(1)
	if x.has(isa.Signed) {
		v = b.Xor(v, b.Sar(v, b.Const(31)))
	}
	zeros := b.LeadingZeros(v)
	n := b.Sub(b.Const(31), zeros)
	if x.has(isa.Amount) {
		n = b.Select(b.Compare("eq", v, b.Const(0)), n, zeros)
	}
	x.set(n)
}
