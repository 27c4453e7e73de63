package random

import "fmt"

// Expressions of a type, nested up to a depth. Signed sums and products are those of unsigned numbers:
// an overflow would be undefined.

func (w *writer) uint(depth int) string {
	constant := fmt.Sprintf("%du", w.r.Uint32()>>w.r.IntN(32))
	switch leaf := depth == 0 || w.r.IntN(6) == 0; {
	case leaf && w.inner > 0:
		return w.pick("u0", "u1", "u2", "u3", "id", constant)
	case leaf:
		return w.pick("u0", "u1", "u2", "u3", "id", "p[2]", "p[u1 & 7]", "table[u2 & 15]", "in[u3 & 255]", constant)
	}
	a, b, d := w.uint(depth-1), w.uint(depth-1), depth-1
	return []func() string{
		func() string { return fmt.Sprintf("(%s %s %s)", a, w.pick("+", "-", "*", "&", "|", "^"), b) },
		func() string { return fmt.Sprintf("(%s %s %s)", a, w.pick("+", "-", "*", "&", "|", "^"), b) },
		func() string { return fmt.Sprintf("(%s %s (%s & 31))", a, w.pick("<<", ">>"), b) },
		func() string { return fmt.Sprintf("(%s %s %d)", a, w.pick("<<", ">>"), w.r.IntN(32)) },
		func() string { return fmt.Sprintf("(%s %s (%s | 1u))", a, w.pick("/", "%"), b) },
		func() string {
			return fmt.Sprintf("%s(%s, %s)", w.pick("min", "max", "mul_hi", "rotate", "hadd", "rhadd", "abs_diff", "add_sat", "sub_sat"), a, b)
		},
		func() string { return fmt.Sprintf("%s(%s)", w.pick("~", "-", "popcount", "clz"), a) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.cond(d), a, b) },
		func() string { return fmt.Sprintf("bitselect(%s, %s, %s)", a, b, w.uint(d)) },
		func() string { return fmt.Sprintf("mul24(%s & 0xffffffu, %s & 0xffffffu)", a, b) },
		func() string { return fmt.Sprintf("mad24(%s & 0xffffu, %s & 0xffu, %s)", a, b, w.uint(d)) },
		func() string { return fmt.Sprintf("(uint)(%s)%s", w.pick("uchar", "ushort", "char", "short"), a) },
		func() string { return fmt.Sprintf("(uint)%s", w.int(d)) },
		func() string { return fmt.Sprintf("(uint)(%s >> %d)", w.ulong(d), w.r.IntN(64)) },
		func() string { return fmt.Sprintf("as_uint(%s)", w.float(d)) },
		func() string { return fmt.Sprintf("(uint)(%s * 1000.0f + 4000.0f)", w.float(0)) },
		// loads
		func() string {
			return fmt.Sprintf("(uint)((global const %s *)in)[%s & 255]", w.pick("uchar", "ushort", "char", "short"), a)
		},
		func() string {
			return fmt.Sprintf("((global const uint4 *)in)[%s & 63].%s", a, w.pick("x", "y", "z", "w"))
		},
	}[w.r.IntN(map[bool]int{true: 18, false: 16}[w.inner == 0])]()
}

func (w *writer) int(depth int) string {
	if depth == 0 || w.r.IntN(6) == 0 {
		return w.pick("s0", "s1", "s2", "(int)u0", "(int)u1", fmt.Sprintf("%d", int32(w.r.Uint32())>>w.r.IntN(31)))
	}
	a, b, d := w.int(depth-1), w.int(depth-1), depth-1
	return []func() string{
		func() string { return fmt.Sprintf("(int)((uint)%s %s (uint)%s)", a, w.pick("+", "-", "*"), b) },
		func() string { return fmt.Sprintf("(%s %s %s)", a, w.pick("&", "|", "^"), b) },
		func() string { return fmt.Sprintf("(%s >> (%s & 31))", a, b) },
		func() string { return fmt.Sprintf("(%s %s ((%s & 0x7fff) + 1))", a, w.pick("/", "%"), b) },
		func() string {
			return fmt.Sprintf("%s(%s, %s)", w.pick("min", "max", "mul_hi", "hadd", "rhadd", "add_sat", "sub_sat"), a, b)
		},
		func() string { return fmt.Sprintf("(int)abs(%s)", a) },
		func() string { return fmt.Sprintf("clamp(%s, -%d, %d)", a, w.r.IntN(1<<20), w.r.IntN(1<<20)) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.cond(d), a, b) },
		func() string { return fmt.Sprintf("(int)(%s)%s", w.pick("char", "short"), a) },
		func() string { return fmt.Sprintf("(int)%s", w.uint(d)) },
		func() string { return fmt.Sprintf("(int)(%s >> %d)", w.long(d), w.r.IntN(64)) },
		func() string {
			return fmt.Sprintf("%s(%s * 1000.0f)", w.pick("(int)", "convert_int_rte", "convert_int_rtp", "convert_int_rtn"), w.float(d))
		},
		func() string { return fmt.Sprintf("(%s)", w.cond(d)) },
	}[w.r.IntN(13)]()
}

func (w *writer) ulong(depth int) string {
	if depth == 0 || w.r.IntN(6) == 0 {
		return w.pick("l0", "l1", "(ulong)u0", "(ulong)m0", fmt.Sprintf("%duL", w.r.Uint64()>>w.r.IntN(64)))
	}
	a, b, d := w.ulong(depth-1), w.ulong(depth-1), depth-1
	return []func() string{
		func() string { return fmt.Sprintf("(%s %s %s)", a, w.pick("+", "-", "*", "&", "|", "^"), b) },
		func() string { return fmt.Sprintf("(%s %s ((%s & 31) + %d))", a, w.pick("<<", ">>"), b, w.r.IntN(33)) },
		func() string { return fmt.Sprintf("(%s %s %d)", a, w.pick("<<", ">>"), w.r.IntN(64)) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.cond(d), a, b) },
		func() string { return fmt.Sprintf("((ulong)%s * (ulong)%s)", w.uint(d), w.uint(d)) },
		func() string { return fmt.Sprintf("(%s %s (%s | 1uL))", a, w.pick("/", "%"), b) },
		func() string { return fmt.Sprintf("(ulong)%s", w.int(d)) },
	}[w.r.IntN(7)]()
}

func (w *writer) long(depth int) string {
	if depth == 0 || w.r.IntN(6) == 0 {
		return w.pick("m0", "(long)l1", "(long)s0", "(long)s1")
	}
	a, b, d := w.long(depth-1), w.long(depth-1), depth-1
	return []func() string{
		func() string { return fmt.Sprintf("(long)((ulong)%s %s (ulong)%s)", a, w.pick("+", "-", "*"), b) },
		func() string { return fmt.Sprintf("(%s >> ((%s & 31) + %d))", a, b, w.r.IntN(33)) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.cond(d), a, b) },
		func() string { return fmt.Sprintf("(long)%s", w.int(d)) },
		func() string { return fmt.Sprintf("((long)%s * (long)%s)", w.int(d), w.int(d)) },
	}[w.r.IntN(5)]()
}

func (w *writer) float(depth int) string {
	if depth == 0 || w.r.IntN(6) == 0 {
		return w.pick("f0", "f1", "f2")
	}
	a, b, d := w.float(depth-1), w.float(depth-1), depth-1
	return []func() string{
		func() string { return fmt.Sprintf("NORM(%s %s %s)", a, w.pick("+", "-", "*"), b) },
		func() string { return fmt.Sprintf("NORM(%s %s %s)", a, w.pick("+", "-", "*"), b) },
		func() string { return fmt.Sprintf("NORM(fma(%s, %s, %s))", a, b, w.float(d)) },
		func() string { return fmt.Sprintf("%s(%s, %s)", w.pick("fmin", "fmax"), a, b) },
		func() string { return fmt.Sprintf("NORM(%s(%s * 8.0f))", w.pick("floor", "ceil", "trunc", "rint"), a) },
		func() string { return fmt.Sprintf("%s(%s)", w.pick("-", "fabs"), a) },
		func() string { return fmt.Sprintf("(%s ? %s : %s)", w.cond(d), a, b) },
		func() string { return fmt.Sprintf("NORM((float)%s)", w.pick(w.int(d), w.uint(d))) },
		func() string { return fmt.Sprintf("NORM(%s * %d.0f)", a, 1+w.r.IntN(9)) },
	}[w.r.IntN(9)]()
}

func (w *writer) cond(depth int) string {
	if depth == 0 {
		return w.pick("u0 & 1", "s0 < 0", "id > 20", "f0 < f1", "l0 > l1")
	}
	d, op := depth-1, w.pick("<", "<=", "==", "!=", ">=", ">")
	return []func() string{
		func() string { return fmt.Sprintf("(%s %s %s)", w.uint(d), op, w.uint(d)) },
		func() string { return fmt.Sprintf("(%s %s %s)", w.int(d), op, w.int(d)) },
		func() string { return fmt.Sprintf("(%s %s %s)", w.ulong(d), op, w.ulong(d)) },
		func() string { return fmt.Sprintf("(%s %s %s)", w.long(d), op, w.long(d)) },
		func() string { return fmt.Sprintf("(%s %s %s)", w.float(d), op, w.float(d)) },
		func() string { return fmt.Sprintf("((%s) %s (%s))", w.cond(d), w.pick("&&", "||", "^"), w.cond(d)) },
		func() string { return fmt.Sprintf("!(%s)", w.cond(d)) },
	}[w.r.IntN(7)]()
}
