package compile

import "math/bits"

// Const is a number of 32 bits, in all lanes.
func (b *Builder) Const(v uint32) *Value { return &Value{Kind: constantKind(uint64(v)), width: 32} }

// Const64 is a number of 64 bits.
func (b *Builder) Const64(v uint64) *Value { return &Value{Kind: constantKind(v), width: 64} }

// bits gives a NaN the bits that others see.
func (b *Builder) bits(x *Value) *Value {
	if x.NaN != Lazy {
		return x
	}
	k := x.Kind
	k.NaN = Canonical
	nan := b.Const(nanBits)
	if x.width == 64 {
		nan = b.Const64(0xfff8000000000000)
	}
	return b.made(k, x.width, func(vector bool) string {
		if vector {
			f := b.fvector(x)
			is := b.line("fcmp uno %s %s, %s", fvty(x.width), f, f)
			return b.line("select <32 x i1> %s, %s %s, %s %s", is, vty(x.width), b.vector(nan), vty(x.width), b.vector(x))
		}
		f := b.fscalar(x)
		is := b.line("fcmp uno %s %s, %s", fty(x.width), f, f)
		return b.line("select i1 %s, %s %s, %s %s", is, ty(x.width), b.scalar(nan), ty(x.width), b.scalar(x))
	})
}

// known computes what is known before the code runs.
func known(op string, x, y *Value) (uint64, bool) {
	if !x.constant() || !y.constant() {
		return 0, false
	}
	a, c, all := x.Min, y.Min, ones(x.width)
	switch op {
	case "add":
		return (a + c) & all, true
	case "sub":
		return (a - c) & all, true
	case "mul":
		return a * c & all, true
	case "and":
		return a & c, true
	case "or":
		return a | c, true
	case "xor":
		return a ^ c, true
	case "shl":
		return a << c & all, true
	case "lshr":
		return a >> c, true
	}
	return 0, false
}

// binary emits an operation of integers. The shape is uniform if the operands are, unless the range says
// more.
func (b *Builder) binary(op string, x, y *Value, k Kind) *Value {
	x, y = b.bits(x), b.bits(y)
	if v, ok := known(op, x, y); ok {
		return &Value{Kind: constantKind(v), width: x.width}
	}
	k.NaN = Bits
	return b.made(k, x.width, func(vector bool) string {
		typ, a := b.either(vector, x)
		_, c := b.either(vector, y)
		return b.line("%s %s %s, %s", op, typ, a, c)
	})
}

// plain is the shape of an operation that keeps no strides.
func plain(values ...*Value) Shape {
	for _, x := range values {
		if x.Shape != Uniform {
			return Vector
		}
	}
	return Uniform
}

// sumKind is the shape of x + factor*y.
func sumKind(x, y *Value, factor uint64) Kind {
	if x.Shape == Vector || y.Shape == Vector {
		return Kind{Shape: Vector}
	}
	all := ones(x.width)
	return Kind{Shape: Affine, Stride: (x.Stride + factor*y.Stride) & all, Step: (x.Step + factor*y.Step) & all}.normal()
}

// Add is a sum.
func (b *Builder) Add(x, y *Value) *Value {
	k := sumKind(x, y, 1)
	k.Min, k.Max = addRange(x.Kind, y.Kind, x.width)
	if zero(y) && x.NaN != Lazy {
		return x
	}
	if zero(x) && y.NaN != Lazy {
		return y
	}
	return b.binary("add", x, y, k)
}

func zero(x *Value) bool { return x.constant() && x.Min == 0 }

// Sub is a difference.
func (b *Builder) Sub(x, y *Value) *Value {
	k := sumKind(x, y, ^uint64(0))
	k.Max = ones(x.width)
	if x.Min >= y.Max {
		k.Min, k.Max = x.Min-y.Max, x.Max-y.Min
	}
	return b.binary("sub", x, y, k)
}

// Mul is the lower half of a product.
func (b *Builder) Mul(x, y *Value) *Value {
	if x.constant() {
		x, y = y, x
	}
	k := Kind{Shape: plain(x, y)}
	if x.Shape == Affine && y.constant() {
		k.Shape, k.Stride, k.Step = Affine, x.Stride*y.Min&ones(x.width), x.Step*y.Min&ones(x.width)
	}
	k.Min, k.Max = mulRange(x.Kind, y.Kind, x.width)
	return b.binary("mul", x, y, k)
}

// MulHigh is the upper half of a product of numbers that are signed or not.
func (b *Builder) MulHigh(x, y *Value, signedX, signedY bool) *Value {
	return b.High(b.Mul(b.Extend(x, signedX), b.Extend(y, signedY)))
}

// And works on bits, as Or and Xor do.
func (b *Builder) And(x, y *Value) *Value {
	k := Kind{Shape: plain(x, y), Max: min(x.Max, y.Max)}
	if x.constant() {
		x, y = y, x
	}
	if m := y.Min; y.constant() && x.NaN != Lazy && (m+1)&m == 0 && x.Max <= m {
		return x // the mask drops nothing
	}
	return b.binary("and", x, y, k)
}

// Or is an inclusive or.
func (b *Builder) Or(x, y *Value) *Value {
	return b.binary("or", x, y, Kind{Shape: plain(x, y), Max: 1<<bits.Len64(x.Max|y.Max) - 1})
}

// Xor is an exclusive or.
func (b *Builder) Xor(x, y *Value) *Value {
	return b.binary("xor", x, y, Kind{Shape: plain(x, y), Max: 1<<bits.Len64(x.Max|y.Max) - 1})
}

// Not inverts all bits.
func (b *Builder) Not(x *Value) *Value {
	return b.Sub(&Value{Kind: constantKind(ones(x.width)), width: x.width}, b.bits(x))
}

// Shl shifts to the left by less than the width. Shr and Sar shift to the right.
func (b *Builder) Shl(x, n *Value) *Value {
	if n.constant() {
		return b.Mul(x, &Value{Kind: constantKind(1 << n.Min), width: x.width})
	}
	return b.binary("shl", x, n, Kind{Shape: plain(x, n), Max: ones(x.width)})
}

// Shr shifts zeros in.
func (b *Builder) Shr(x, n *Value) *Value {
	k := Kind{Shape: plain(x, n), Max: x.Max}
	if n.constant() {
		k.Min, k.Max = x.Min>>n.Min, x.Max>>n.Min
		if k.Max == 0 {
			k.Shape = Uniform
		}
	}
	return b.binary("lshr", x, n, k)
}

// Sar shifts the sign in.
func (b *Builder) Sar(x, n *Value) *Value {
	if x.Max <= ones(x.width)>>1 {
		return b.Shr(x, n)
	}
	return b.binary("ashr", x, n, Kind{Shape: plain(x, n), Max: ones(x.width)})
}

// unary emits a call of an intrinsic function, whose result is at most limit.
func (b *Builder) unary(name string, x *Value, limit uint64, rest string) *Value {
	x = b.bits(x)
	return b.made(Kind{Shape: plain(x), Max: limit, NaN: Bits}, x.width, func(vector bool) string {
		typ, a := b.either(vector, x)
		suffix := ty(x.width)
		if vector {
			suffix = "v32" + suffix
		}
		b.t.intrinsic("%s @llvm.%s.%s(%s%s)", typ, name, suffix, typ, pick(rest != "", ", i1", ""))
		return b.line("call %s @llvm.%s.%s(%s %s%s)", typ, name, suffix, typ, a, rest)
	})
}

// PopCount counts bits, LeadingZeros the zeros before the first one, and Reverse reverses them.
func (b *Builder) PopCount(x *Value) *Value { return b.unary("ctpop", x, 32, "") }

// LeadingZeros of zero is the width.
func (b *Builder) LeadingZeros(x *Value) *Value { return b.unary("ctlz", x, 64, ", i1 false") }

// Reverse swaps the first bit with the last, and so on.
func (b *Builder) Reverse(x *Value) *Value { return b.unary("bitreverse", x, ones(x.width), "") }
