package compile

// floating emits an operation of floats, whose NaNs have any bits.
func (b *Builder) floating(width uint8, emit func(vector bool) string, operands ...*Value) *Value {
	x := &Value{Kind: Kind{Shape: plain(operands...), Max: ones(width), NaN: Lazy}, width: width}
	name := emit(x.Shape == Vector)
	if x.Shape == Vector {
		x.fv = name
	} else {
		x.fs = name
	}
	return x
}

// feither is either for floats.
func (b *Builder) feither(vector bool, x *Value) (typ, name string) {
	if vector {
		return fvty(x.width), b.fvector(x)
	}
	return fty(x.width), b.fscalar(x)
}

func (b *Builder) fbinary(op string, x, y *Value) *Value {
	return b.floating(x.width, func(vector bool) string {
		typ, p := b.feither(vector, x)
		_, q := b.feither(vector, y)
		return b.line("%s %s %s, %s", op, typ, p, q)
	}, x, y)
}

// FAdd, FMul and FDiv round once, to the nearest.
func (b *Builder) FAdd(x, y *Value) *Value { return b.fbinary("fadd", x, y) }

// FMul is a product.
func (b *Builder) FMul(x, y *Value) *Value { return b.fbinary("fmul", x, y) }

// FDiv is a quotient.
func (b *Builder) FDiv(x, y *Value) *Value { return b.fbinary("fdiv", x, y) }

// call emits a call of an intrinsic function of floats, which is named by its result's type.
func (b *Builder) call(name string, operands ...*Value) *Value {
	width := operands[0].width
	return b.floating(width, func(vector bool) string {
		suffix, args, types := "f32", "", ""
		if width == 64 {
			suffix = "f64"
		}
		if vector {
			suffix = "v32" + suffix
		}
		var typ string
		for i, x := range operands {
			var name string
			typ, name = b.feither(vector, x)
			if i > 0 {
				args, types = args+", ", types+", "
			}
			args, types = args+typ+" "+name, types+typ
		}
		b.t.intrinsic("%s @llvm.%s.%s(%s)", typ, name, suffix, types)
		return b.line("call %s @llvm.%s.%s(%s)", typ, name, suffix, args)
	}, operands...)
}

// FFma is x*y + z, rounded once.
func (b *Builder) FFma(x, y, z *Value) *Value { return b.call("fma", x, y, z) }

// FSqrt is a square root.
func (b *Builder) FSqrt(x *Value) *Value { return b.call("sqrt", x) }

// FIntegral rounds to an integer by a function of IR: roundeven, floor, ceil or trunc.
func (b *Builder) FIntegral(how string, x *Value) *Value { return b.call(how, x) }

// FNeg and FAbs change the sign.
func (b *Builder) FNeg(x *Value) *Value { return b.sign("xor", x, 1<<(x.width-1)) }

// FAbs drops the sign.
func (b *Builder) FAbs(x *Value) *Value { return b.sign("and", x, ones(x.width)>>1) }

// sign changes bits of a float. A NaN stays one, and only floats are made of it.
func (b *Builder) sign(op string, x *Value, mask uint64) *Value {
	m := &Value{Kind: constantKind(mask), width: x.width}
	if v, ok := known(op, x, m); ok {
		return &Value{Kind: constantKind(v), width: x.width}
	}
	k := Kind{Shape: plain(x), Max: ones(x.width), NaN: Lazy}
	return b.made(k, x.width, func(vector bool) string {
		typ, a := b.either(vector, x)
		_, c := b.either(vector, m)
		return b.line("%s %s %s, %s", op, typ, a, c)
	})
}

// FCompare compares floats by a condition of IR: oeq, olt, uno and so on.
func (b *Builder) FCompare(cond string, x, y *Value) *Value {
	return b.truth(plain(x, y), func(vector bool) string {
		typ, p := b.feither(vector, x)
		_, q := b.feither(vector, y)
		return b.line("fcmp %s %s %s, %s", cond, typ, p, q)
	})
}

// Flush makes a denormal zero, with its sign.
func (b *Builder) Flush(x *Value) *Value {
	if x.constant() {
		if x.Min&infBits == 0 {
			return b.Const(uint32(x.Min) & (1 << 31))
		}
		return x
	}
	raw := &Value{Kind: x.Kind, width: x.width, s: x.s, v: x.v, fs: x.fs, fv: x.fv}
	raw.NaN = Bits // a NaN stays what it is: no bits of it are looked at
	tiny := b.Compare("eq", b.And(raw, b.Const(infBits)), b.Const(0))
	flushed := b.And(raw, b.Const(1<<31))
	flushed.NaN = Canonical
	out := *x
	return b.Select(tiny, flushed, &out)
}

// Saturate clamps to 0..1. A NaN becomes zero.
func (b *Builder) Saturate(x *Value) *Value {
	zero, one := b.Const(0), b.Const(0x3f800000)
	if x.width == 64 {
		zero, one = b.Const64(0), b.Const64(0x3ff0000000000000)
	}
	return b.Select(b.FCompare("ogt", x, zero), b.Select(b.FCompare("olt", x, one), x, one), zero)
}

// FMinMax is the smaller or the greater of two. It drops a NaN, and takes -0 to be less than 0.
func (b *Builder) FMinMax(x, y *Value, smaller bool) *Value {
	cond, op := "ogt", "and"
	if smaller {
		cond, op = "olt", "or"
	}
	bothZero := &Value{Kind: Kind{Shape: plain(x, y), Max: ones(x.width), NaN: Lazy}, width: x.width}
	name := func(vector bool) string {
		typ, p := b.either(vector, x)
		_, q := b.either(vector, y)
		return b.line("%s %s %s, %s", op, typ, p, q)
	}
	if bothZero.Shape == Vector {
		bothZero.v = name(true)
	} else {
		bothZero.s = name(false)
	}
	x, y = b.Float(x), b.Float(y)
	v := b.Select(b.FCompare(cond, x, y), x, y)
	v = b.Select(b.FCompare("oeq", x, y), bothZero, v)
	v = b.Select(b.FCompare("uno", y, y), x, v)
	return b.Select(b.FCompare("uno", x, x), y, v)
}

// Float is a value of which only a float is made, so that its NaNs may have any bits.
func (b *Builder) Float(x *Value) *Value {
	v := *x
	if x.constant() {
		if exponent := ones(x.width) >> 1 &^ (1<<(pick(x.width == 64, 52, 23)) - 1); x.Min&exponent == exponent && x.Min&(exponent&-exponent-1) != 0 {
			v.Kind = constantKind(pick(x.width == 64, uint64(0xfff8000000000000), nanBits))
		}
		return &v
	}
	if x.NaN == Bits {
		v.NaN, v.Max, v.Min = Lazy, ones(x.width), 0
	}
	return &v
}
