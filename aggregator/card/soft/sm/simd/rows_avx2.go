//go:build amd64 && goexperiment.simd

package simd

import "simd/archsimd"

func load256(r *row, i int) vec256    { return archsimd.LoadUint32x8((*[lanes256]uint32)(r[i:])) }
func save256(v vec256, r *row, i int) { v.Store((*[lanes256]uint32)(r[i:])) }
func all256(v uint32) vec256          { return archsimd.BroadcastUint32x8(v) }
func bits256(m mask256, i int) uint32 { return uint32(m.ToBits()) << i }
func negative256(v vec256) mask256    { return v.AsInt32x8().Less(archsimd.Int32x8{}) }

// each256 computes a row of two rows. The compiler inlines it, and f. Like all operations it clears the
// registers' upper halves: else Intel's processors slow down the SSE instructions of Go's scalar code.
func each256(d, a, b *row, f func(v, w vec256) vec256) {
	for i := 0; i < len(d); i += lanes256 {
		save256(f(load256(a, i), load256(b, i)), d, i)
	}
	archsimd.ClearAVXUpperBits()
}

// avx2 are operations with these vectors.
var avx2 = rowOps{
	add: func(d, a, b, _ *row, p *params) {
		m, n, plus := all256(p.xor[0]), all256(p.xor[1]), all256(p.plus)
		each256(d, a, b, func(v, w vec256) vec256 { return v.Xor(m).Add(w.Xor(n)).Add(plus) })
	},
	shiftAdd: func(d, a, b, _ *row, p *params) {
		m, n, plus, shift := all256(p.xor[0]), all256(p.xor[1]), all256(p.plus), all256(p.shift&31)
		each256(d, a, b, func(v, w vec256) vec256 { return v.ShiftLeft(shift).Xor(m).Add(w.Xor(n)).Add(plus) })
	},
	mul: func(d, a, b, _ *row, _ *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return v.Mul(w) })
	},
	mulAdd: func(d, a, b, c *row, p *params) {
		m, n, plus := all256(p.xor[0]), all256(p.xor[1]), all256(p.plus)
		for i := 0; i < len(d); i += lanes256 {
			save256(load256(a, i).Mul(load256(b, i)).Xor(m).Add(load256(c, i).Xor(n)).Add(plus), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	and: func(d, a, b, _ *row, p *params) {
		m, n := all256(p.xor[0]), all256(p.xor[1])
		each256(d, a, b, func(v, w vec256) vec256 { return v.Xor(m).And(w.Xor(n)) })
	},
	or: func(d, a, b, _ *row, p *params) {
		m, n := all256(p.xor[0]), all256(p.xor[1])
		each256(d, a, b, func(v, w vec256) vec256 { return v.Xor(m).Or(w.Xor(n)) })
	},
	xor: func(d, a, b, _ *row, p *params) {
		m := all256(p.xor[0] ^ p.xor[1])
		each256(d, a, b, func(v, w vec256) vec256 { return v.Xor(w).Xor(m) })
	},
	second: func(d, _, b, _ *row, p *params) {
		n := all256(p.xor[1])
		each256(d, b, b, func(v, _ vec256) vec256 { return v.Xor(n) })
	},
	shl: func(d, a, b, _ *row, p *params) {
		most := all256(p.and[1])
		each256(d, a, b, func(v, w vec256) vec256 { return v.ShiftLeft(w.And(most)) })
	},
	shr: func(d, a, b, _ *row, p *params) {
		most := all256(p.and[1])
		each256(d, a, b, func(v, w vec256) vec256 { return v.ShiftRight(w.And(most)) })
	},
	shrSigned: func(d, a, b, _ *row, p *params) {
		most := all256(p.and[1])
		each256(d, a, b, func(v, w vec256) vec256 {
			return v.AsInt32x8().ShiftRight(w.And(most).AsInt32x8()).AsUint32x8()
		})
	},
	minInt: func(d, a, b, _ *row, _ *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return v.AsInt32x8().Min(w.AsInt32x8()).AsUint32x8() })
	},
	maxInt: func(d, a, b, _ *row, _ *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return v.AsInt32x8().Max(w.AsInt32x8()).AsUint32x8() })
	},
	minUint: func(d, a, b, _ *row, _ *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return v.Min(w) })
	},
	maxUint: func(d, a, b, _ *row, _ *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return v.Max(w) })
	},
	fromInt: func(d, _, b, _ *row, _ *params) {
		each256(d, b, b, func(v, _ vec256) vec256 { return v.AsInt32x8().ConvertToFloat32().AsUint32x8() })
	},
	fromUint: func(d, _, b, _ *row, _ *params) {
		each256(d, b, b, func(v, _ vec256) vec256 { return fromUint256(v).AsUint32x8() })
	},
	addFloat: func(d, a, b, _ *row, p *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return finish256(signed256(v, p, 0).Add(signed256(w, p, 1)), p) })
	},
	mulFloat: func(d, a, b, _ *row, p *params) {
		each256(d, a, b, func(v, w vec256) vec256 { return finish256(signed256(v, p, 0).Mul(signed256(w, p, 1)), p) })
	},
	fma: func(d, a, b, c *row, p *params) {
		for i := 0; i < len(d); i += lanes256 {
			v, w, x := signed256(load256(a, i), p, 0), signed256(load256(b, i), p, 1), signed256(load256(c, i), p, 2)
			save256(finish256(v.MulAdd(w, x), p), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	rcp: func(d, a, _, _ *row, p *params) {
		one := all256(oneBits).AsFloat32x8()
		each256(d, a, a, func(v, _ vec256) vec256 { return finish256(one.Div(signed256(v, p, 0)), p) })
	},
	minFloat: func(d, a, b, _ *row, p *params) {
		each256(d, a, b, func(v, w vec256) vec256 {
			x, y := signed256(v, p, 0), signed256(w, p, 1)
			return finish256(x.Merge(y, before256(x, y).Or(y.IsNaN())), p)
		})
	},
	maxFloat: func(d, a, b, _ *row, p *params) {
		each256(d, a, b, func(v, w vec256) vec256 {
			x, y := signed256(v, p, 0), signed256(w, p, 1)
			return finish256(y.Merge(x, before256(x, y).Or(x.IsNaN())), p)
		})
	},
	addCarry: func(d, a, b *row, p *params, carries uint32) (carry, overflow uint32) {
		m, n, one := all256(p.xor[0]), all256(p.xor[1]), all256(1)
		for i := 0; i < len(d); i += lanes256 {
			v, w := load256(a, i).Xor(m), load256(b, i).Xor(n)
			first := v.Add(w)
			sum := first.Add(one.Masked(maskOf256(carries, i)))
			save256(sum, d, i)
			carry |= bits256(first.Less(v).Or(sum.Less(first)), i)
			overflow |= bits256(negative256(v.Xor(sum).And(w.Xor(sum))), i)
		}
		archsimd.ClearAVXUpperBits()
		return carry, overflow
	},
	zeroSign: func(a *row) (zero, sign uint32) {
		for i := 0; i < len(a); i += lanes256 {
			v := load256(a, i)
			zero |= bits256(v.Equal(vec256{}), i)
			sign |= bits256(negative256(v), i)
		}
		archsimd.ClearAVXUpperBits()
		return zero, sign
	},
	order: func(a, b *row, top uint32) (less, equal uint32) {
		m := all256(top)
		for i := 0; i < len(a); i += lanes256 {
			v, w := load256(a, i).Xor(m), load256(b, i).Xor(m)
			less |= bits256(v.Less(w), i)
			equal |= bits256(v.Equal(w), i)
		}
		archsimd.ClearAVXUpperBits()
		return less, equal
	},
	orderFloat: func(a, b *row, p *params) (less, equal, greater uint32) {
		for i := 0; i < len(a); i += lanes256 {
			v, w := signed256(load256(a, i), p, 0), signed256(load256(b, i), p, 1)
			less |= bits256(v.Less(w), i)
			equal |= bits256(v.Equal(w), i)
			greater |= bits256(v.Greater(w), i)
		}
		archsimd.ClearAVXUpperBits()
		return less, equal, greater
	},
	choose: func(d, a, b *row, first uint32) {
		for i := 0; i < len(d); i += lanes256 {
			save256(load256(a, i).Merge(load256(b, i), maskOf256(first, i)), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	sequence: func(a *row, step uint32) bool {
		first, n := all256(a[0]), all256(step)
		var equal uint32
		for i := 0; i < len(a); i += lanes256 {
			equal |= bits256(load256(a, i).Equal(load256(&laneNumbers, i).Mul(n).Add(first)), i)
		}
		archsimd.ClearAVXUpperBits()
		return equal == allLanes
	},
}

// signed256 applies the signs of source n, and makes denormals zero if asked.
func signed256(v vec256, p *params, n int) archsimd.Float32x8 {
	if p.ftz {
		v = flushed256(v)
	}
	return v.And(all256(p.and[n])).Xor(all256(p.xor[n])).AsFloat32x8()
}

func flushed256(v vec256) vec256 {
	return v.And(all256(signBit)).Merge(v, v.And(all256(exponent)).Equal(vec256{}))
}

// finish256 makes the bits of a result, see params.finish.
func finish256(v archsimd.Float32x8, p *params) vec256 {
	var bits vec256
	if p.sat {
		bits = v.Min(all256(oneBits).AsFloat32x8()).Masked(v.Greater(archsimd.Float32x8{})).AsUint32x8()
	} else {
		bits = all256(nanBits).Merge(v.AsUint32x8(), v.IsNaN())
	}
	if p.ftz {
		bits = flushed256(bits)
	}
	return bits
}

// before256 returns the lanes in which a value is less than another one: -0 is less than 0.
func before256(v, w archsimd.Float32x8) mask256 {
	return v.Less(w).Or(v.Equal(w).And(negative256(v.AsUint32x8())))
}
