package compile

import "strings"

// False and True are booleans in all lanes.
func (b *Builder) False() *Value { return &Value{Kind: constantKind(0), width: 1} }

// True holds in all lanes.
func (b *Builder) True() *Value { return &Value{Kind: constantKind(1), width: 1} }

// Compare compares integers by a condition of IR: eq, ne, ult, ule, ugt, uge, slt, sle, sgt, sge.
func (b *Builder) Compare(cond string, x, y *Value) *Value {
	x, y = b.bits(x), b.bits(y)
	if v, ok := decided(cond, x.Kind, y.Kind, x.width); ok {
		if v {
			return b.True()
		}
		return b.False()
	}
	out := b.truth(plain(x, y), func(vector bool) string {
		typ, a := b.either(vector, x)
		_, c := b.either(vector, y)
		return b.line("icmp %s %s %s, %s", cond, typ, a, c)
	})
	out.compared = &comparison{cond, x, y}
	return out
}

// truth makes a boolean that is not known.
func (b *Builder) truth(shape Shape, emit func(vector bool) string) *Value {
	return b.made(Kind{Shape: shape, Max: 1}, 1, emit)
}

// decided compares by the ranges alone.
func decided(cond string, x, y Kind, width uint8) (holds, ok bool) {
	if strings.HasPrefix(cond, "s") {
		if top := ones(width) >> 1; x.Max > top || y.Max > top {
			return false, false
		}
		cond = "u" + cond[1:]
	}
	switch cond {
	case "eq", "ne":
		if x.constant() && y.constant() && x.Min == y.Min {
			return cond == "eq", true
		}
		return cond == "ne", x.Max < y.Min || y.Max < x.Min
	case "ult":
		return x.Max < y.Min, x.Max < y.Min || x.Min >= y.Max
	case "ule":
		return x.Max <= y.Min, x.Max <= y.Min || x.Min > y.Max
	case "ugt":
		return decided("ult", y, x, width)
	case "uge":
		return decided("ule", y, x, width)
	}
	return false, false
}

// Both, One and Differ combine booleans.
func (b *Builder) Both(x, y *Value) *Value {
	switch {
	case x.constant():
		return pick(x.Min != 0, y, x)
	case y.constant():
		return pick(y.Min != 0, x, y)
	}
	return b.combined("and", x, y)
}

// One is true if one of them is, or both.
func (b *Builder) One(x, y *Value) *Value {
	switch {
	case x.constant():
		return pick(x.Min != 0, x, y)
	case y.constant():
		return pick(y.Min != 0, y, x)
	}
	return b.combined("or", x, y)
}

// Differ is true if only one is.
func (b *Builder) Differ(x, y *Value) *Value {
	if x.constant() {
		x, y = y, x
	}
	if zero(y) {
		return x
	}
	return b.combined("xor", x, y)
}

// Opposite is true where x is not.
func (b *Builder) Opposite(x *Value) *Value {
	if x.constant() {
		return pick(x.Min != 0, b.False(), b.True())
	}
	out := *b.Differ(x, b.True())
	out.compared = x.compared.opposite()
	return &out
}

func pick[T any](first bool, x, y T) T {
	if first {
		return x
	}
	return y
}

// combined works on masks where there are masks, as lanes are kept in them.
func (b *Builder) combined(op string, x, y *Value) *Value {
	shape := plain(x, y)
	if shape == Vector && (x.mask != "" || y.mask != "") {
		return &Value{Kind: Kind{Shape: Vector, Max: 1}, width: 1, mask: b.line("%s i32 %s, %s", op, b.maskOf(x), b.maskOf(y))}
	}
	return b.truth(shape, func(vector bool) string {
		typ, a := b.either(vector, x)
		if vector && y.constant() {
			return b.line("%s %s %s, %s", op, typ, a, b.vector(&Value{Kind: Kind{Max: 1}, width: 1, s: literal(1, y.Min)}))
		}
		_, c := b.either(vector, y)
		return b.line("%s %s %s, %s", op, typ, a, c)
	})
}

// Select is x where a condition holds, else y.
func (b *Builder) Select(c, x, y *Value) *Value {
	if c.constant() {
		return pick(c.Min != 0, x, y)
	}
	if x == y {
		return x
	}
	if x.NaN == Bits || y.NaN == Bits { // bits of one must not be taken for a NaN of the other
		x, y = b.bits(x), b.bits(y)
	}
	k := x.Kind.join(y.Kind)
	if k.Shape != Vector && c.Shape == Vector {
		k.Shape = Vector
	}
	if x.width == 1 {
		return b.One(b.Both(c, x), b.Both(b.Opposite(c), y))
	}
	return b.made(k.normal(), x.width, func(vector bool) string {
		typ, p := b.either(vector, x)
		_, q := b.either(vector, y)
		if c.Shape == Uniform {
			return b.line("select i1 %s, %s %s, %s %s", b.scalar(c), typ, p, typ, q)
		}
		return b.line("select <32 x i1> %s, %s %s, %s %s", b.vector(c), typ, p, typ, q)
	})
}
