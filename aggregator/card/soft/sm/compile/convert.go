package compile

import "fmt"

// cast emits a conversion between types of IR.
func (b *Builder) cast(op string, x *Value, from, to string, k Kind, width uint8, float bool) *Value {
	y := &Value{Kind: k, width: width}
	vector := k.Shape == Vector
	var name string
	if from[0] == 'f' || from[0] == 'd' {
		_, name = b.feither(vector, x)
	} else {
		_, name = b.either(vector, x)
	}
	if vector {
		from, to = fmt.Sprintf("<32 x %s>", from), fmt.Sprintf("<32 x %s>", to)
	}
	name = b.line("%s %s %s to %s", op, from, name, to)
	switch {
	case float && vector:
		y.fv = name
	case float:
		y.fs = name
	case vector:
		y.v = name
	default:
		y.s = name
	}
	return y
}

// FWiden makes 64 bits of a float of 32, FNarrow rounds to the nearest.
func (b *Builder) FWiden(x *Value) *Value {
	return b.cast("fpext", x, "float", "double", Kind{Shape: plain(x), Max: ones(64), NaN: Lazy}, 64, true)
}

// FNarrow rounds 64 bits to 32.
func (b *Builder) FNarrow(x *Value) *Value {
	return b.cast("fptrunc", x, "double", "float", Kind{Shape: plain(x), Max: ones(32), NaN: Lazy}, 32, true)
}

// ToFloat makes a float of an integer, rounded to the nearest.
func (b *Builder) ToFloat(x *Value, signed bool, width uint8) *Value {
	x = b.bits(x)
	op := pick(signed, "sitofp", "uitofp")
	k := Kind{Shape: plain(x), Max: ones(width), NaN: Canonical}
	return b.cast(op, x, ty(x.width), fty(width), k, width, true)
}

// ToInt makes an integer of a float, clamped to its type. A NaN is zero.
func (b *Builder) ToInt(x *Value, signed bool, width uint8) *Value {
	k := Kind{Shape: plain(x), Max: ones(width), NaN: Bits}
	name := pick(signed, "fptosi", "fptoui")
	return b.made(k, width, func(vector bool) string {
		typ, a := b.feither(vector, x)
		to, suffix := ty(width), ty(width)+".f"+fmt.Sprint(x.width)
		if vector {
			to, suffix = vty(width), "v32"+ty(width)+".v32f"+fmt.Sprint(x.width)
		}
		b.t.intrinsic("%s @llvm.%s.sat.%s(%s)", to, name, suffix, typ)
		return b.line("call %s @llvm.%s.sat.%s(%s %s)", to, name, suffix, typ, a)
	})
}
