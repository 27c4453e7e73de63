package compile

// Extend makes 64 bits of 32.
func (b *Builder) Extend(x *Value, signed bool) *Value {
	x = b.bits(x)
	if x.constant() {
		if signed {
			return b.Const64(uint64(int64(int32(x.Min))))
		}
		return b.Const64(x.Min)
	}
	k, op := Kind{Shape: x.Shape, Min: x.Min, Max: x.Max, NaN: Bits}, "zext"
	if signed && x.Max > 1<<31-1 {
		op, k.Min, k.Max = "sext", 0, ones(64)
	}
	if x.Shape == Affine {
		if op == "zext" && x.steady() {
			k.Stride, k.Step = x.Stride, x.Step
		} else {
			k.Shape = Vector
		}
	}
	return b.convert(op, x, k, 64)
}

func (b *Builder) convert(op string, x *Value, k Kind, width uint8) *Value {
	return b.made(k, width, func(vector bool) string {
		typ, a := b.either(vector, x)
		to := ty(width)
		if vector {
			to = vty(width)
		}
		return b.line("%s %s %s to %s", op, typ, a, to)
	})
}

// Low is the lower half of 64 bits, High the upper one.
func (b *Builder) Low(x *Value) *Value {
	if x.constant() {
		return b.Const(uint32(x.Min))
	}
	k := Kind{Shape: x.Shape, Stride: x.Stride & ones(32), Step: x.Step & ones(32), Max: ones(32), NaN: Bits}
	if x.Max <= ones(32) {
		k.Min, k.Max = x.Min, x.Max
	}
	v := b.convert("trunc", x, k, 32)
	v.wide = x
	return v
}

// High is the upper half.
func (b *Builder) High(x *Value) *Value {
	if x.constant() {
		return b.Const(uint32(x.Min >> 32))
	}
	if x.Max <= ones(32) {
		return b.Const(0)
	}
	top := b.Shr(x, b.Const64(32))
	v := b.convert("trunc", top, Kind{Shape: top.Shape, Min: top.Min, Max: top.Max, NaN: Bits}, 32)
	v.wide, v.high = x, true
	return v
}

// Pair makes 64 bits of two halves. Halves of the same number are that number.
func (b *Builder) Pair(low, high *Value) *Value {
	low, high = b.bits(low), b.bits(high)
	if x := b.whole(low, high); x != nil {
		return x
	}
	top := b.Shl(b.Extend(high, false), b.Const64(32))
	return b.Or(b.Extend(low, false), top)
}

// whole is Pair without making a vector: nil if that is what it would take.
func (b *Builder) whole(low, high *Value) *Value {
	switch {
	case low.wide != nil && low.wide == high.wide && !low.high && high.high:
		return low.wide
	case zero(high) && (low.Shape != Affine || low.steady()):
		return b.Extend(low, false)
	case low.Shape == Uniform && high.Shape == Uniform:
		return b.Or(b.Extend(low, false), b.Shl(b.Extend(high, false), b.Const64(32)))
	}
	return nil
}

// AddCarry adds two numbers and a carry, and returns the sum and the new carry.
//
// Compilers add numbers of 64 bits in two halves. The upper half finds the lower one by the carry, so
// that a whole sum can stay what it was: a base and a stride.
func (b *Builder) AddCarry(x, y, carry *Value) (sum, out *Value) {
	x, y = b.bits(x), b.bits(y)
	if lo := carry.sum; lo[0] != nil {
		p, q := b.whole(lo[0], x), b.whole(lo[1], y)
		if p == nil || q == nil { // the operands of the halves may come in another order
			p, q = b.whole(lo[0], y), b.whole(lo[1], x)
		}
		if p != nil && q != nil {
			wide := b.Add(p, q)
			sum = b.High(wide)
			sum.wide, sum.high = wide, true
			carry.lower.wide, carry.lower.high = wide, false
			return sum, b.carryOf(x, y, carry)
		}
	}
	if zero(carry) {
		sum = b.Add(x, y)
		out = b.Compare("ult", sum, x)
		if _, hi := addRange(x.Kind, y.Kind, 64); hi <= ones(32) {
			out = b.False()
		}
		c := *out
		c.sum, c.lower = [2]*Value{x, y}, sum
		return sum, &c
	}
	wide := b.Add(b.Add(b.Extend(x, false), b.Extend(y, false)), b.Extend(b.number(carry), false))
	return b.Low(wide), b.Compare("ugt", wide, b.Const64(ones(32)))
}

// carryOf is the carry out of a sum with a carry. It is seldom used: the code that makes it goes.
func (b *Builder) carryOf(x, y, carry *Value) *Value {
	wide := b.Add(b.Add(b.Extend(x, false), b.Extend(y, false)), b.Extend(b.number(carry), false))
	return b.Compare("ugt", wide, b.Const64(ones(32)))
}

// number is a boolean as 0 or 1.
func (b *Builder) number(x *Value) *Value { return b.Select(x, b.Const(1), b.Const(0)) }

// A wideKind is what is known of two registers as one number of 64 bits, if that is a base and a stride.
type wideKind struct {
	Kind
	ok bool
}

func (k wideKind) join(o wideKind) wideKind {
	out := wideKind{k.Kind.join(o.Kind), k.ok && o.ok}
	out.ok = out.ok && out.Shape != Vector
	return out
}

// wideOf returns the number that two registers are, nil if its lanes differ by more than a stride.
func wideOf(low, high *Value) *Value {
	if w := low.wide; w != nil && w == high.wide && !low.high && high.high && w.Shape != Vector {
		return w
	}
	return nil
}
