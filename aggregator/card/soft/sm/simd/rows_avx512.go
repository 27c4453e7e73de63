//go:build amd64 && goexperiment.simd

package simd

import "simd/archsimd"

func load512(r *row, i int) vec512    { return archsimd.LoadUint32x16((*[lanes512]uint32)(r[i:])) }
func save512(v vec512, r *row, i int) { v.Store((*[lanes512]uint32)(r[i:])) }
func all512(v uint32) vec512          { return archsimd.BroadcastUint32x16(v) }
func bits512(m mask512, i int) uint32 { return uint32(m.ToBits()) << i }
func negative512(v vec512) mask512    { return v.AsInt32x16().Less(archsimd.Int32x16{}) }

// each512 computes a row of two rows. The compiler inlines it, and f. Like all operations it clears the
// registers' upper halves: else Intel's processors slow down the SSE instructions of Go's scalar code.
func each512(d, a, b *row, f func(v, w vec512) vec512) {
	for i := 0; i < len(d); i += lanes512 {
		save512(f(load512(a, i), load512(b, i)), d, i)
	}
	archsimd.ClearAVXUpperBits()
}

// avx512 are operations with these vectors.
var avx512 = rowOps{
	add: func(d, a, b, _ *row, p *params) {
		m, n, plus := all512(p.xor[0]), all512(p.xor[1]), all512(p.plus)
		each512(d, a, b, func(v, w vec512) vec512 { return v.Xor(m).Add(w.Xor(n)).Add(plus) })
	},
	shiftAdd: func(d, a, b, _ *row, p *params) {
		m, n, plus, shift := all512(p.xor[0]), all512(p.xor[1]), all512(p.plus), all512(p.shift&31)
		each512(d, a, b, func(v, w vec512) vec512 { return v.ShiftLeft(shift).Xor(m).Add(w.Xor(n)).Add(plus) })
	},
	mul: func(d, a, b, _ *row, _ *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return v.Mul(w) })
	},
	mulAdd: func(d, a, b, c *row, p *params) {
		m, n, plus := all512(p.xor[0]), all512(p.xor[1]), all512(p.plus)
		for i := 0; i < len(d); i += lanes512 {
			save512(load512(a, i).Mul(load512(b, i)).Xor(m).Add(load512(c, i).Xor(n)).Add(plus), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	and: func(d, a, b, _ *row, p *params) {
		m, n := all512(p.xor[0]), all512(p.xor[1])
		each512(d, a, b, func(v, w vec512) vec512 { return v.Xor(m).And(w.Xor(n)) })
	},
	or: func(d, a, b, _ *row, p *params) {
		m, n := all512(p.xor[0]), all512(p.xor[1])
		each512(d, a, b, func(v, w vec512) vec512 { return v.Xor(m).Or(w.Xor(n)) })
	},
	xor: func(d, a, b, _ *row, p *params) {
		m := all512(p.xor[0] ^ p.xor[1])
		each512(d, a, b, func(v, w vec512) vec512 { return v.Xor(w).Xor(m) })
	},
	second: func(d, _, b, _ *row, p *params) {
		n := all512(p.xor[1])
		each512(d, b, b, func(v, _ vec512) vec512 { return v.Xor(n) })
	},
	shl: func(d, a, b, _ *row, p *params) {
		most := all512(p.and[1])
		each512(d, a, b, func(v, w vec512) vec512 { return v.ShiftLeft(w.And(most)) })
	},
	shr: func(d, a, b, _ *row, p *params) {
		most := all512(p.and[1])
		each512(d, a, b, func(v, w vec512) vec512 { return v.ShiftRight(w.And(most)) })
	},
	shrSigned: func(d, a, b, _ *row, p *params) {
		most := all512(p.and[1])
		each512(d, a, b, func(v, w vec512) vec512 {
			return v.AsInt32x16().ShiftRight(w.And(most).AsInt32x16()).AsUint32x16()
		})
	},
	minInt: func(d, a, b, _ *row, _ *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return v.AsInt32x16().Min(w.AsInt32x16()).AsUint32x16() })
	},
	maxInt: func(d, a, b, _ *row, _ *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return v.AsInt32x16().Max(w.AsInt32x16()).AsUint32x16() })
	},
	minUint: func(d, a, b, _ *row, _ *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return v.Min(w) })
	},
	maxUint: func(d, a, b, _ *row, _ *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return v.Max(w) })
	},
	fromInt: func(d, _, b, _ *row, _ *params) {
		each512(d, b, b, func(v, _ vec512) vec512 { return v.AsInt32x16().ConvertToFloat32().AsUint32x16() })
	},
	fromUint: func(d, _, b, _ *row, _ *params) {
		each512(d, b, b, func(v, _ vec512) vec512 { return fromUint512(v).AsUint32x16() })
	},
	addFloat: func(d, a, b, _ *row, p *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return finish512(signed512(v, p, 0).Add(signed512(w, p, 1)), p) })
	},
	mulFloat: func(d, a, b, _ *row, p *params) {
		each512(d, a, b, func(v, w vec512) vec512 { return finish512(signed512(v, p, 0).Mul(signed512(w, p, 1)), p) })
	},
	fma: func(d, a, b, c *row, p *params) {
		for i := 0; i < len(d); i += lanes512 {
			v, w, x := signed512(load512(a, i), p, 0), signed512(load512(b, i), p, 1), signed512(load512(c, i), p, 2)
			save512(finish512(v.MulAdd(w, x), p), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	rcp: func(d, a, _, _ *row, p *params) {
		one := all512(oneBits).AsFloat32x16()
		each512(d, a, a, func(v, _ vec512) vec512 { return finish512(one.Div(signed512(v, p, 0)), p) })
	},
	minFloat: func(d, a, b, _ *row, p *params) {
		each512(d, a, b, func(v, w vec512) vec512 {
			x, y := signed512(v, p, 0), signed512(w, p, 1)
			return finish512(x.Merge(y, before512(x, y).Or(y.IsNaN())), p)
		})
	},
	maxFloat: func(d, a, b, _ *row, p *params) {
		each512(d, a, b, func(v, w vec512) vec512 {
			x, y := signed512(v, p, 0), signed512(w, p, 1)
			return finish512(y.Merge(x, before512(x, y).Or(x.IsNaN())), p)
		})
	},
	addCarry: func(d, a, b *row, p *params, carries uint32) (carry, overflow uint32) {
		m, n, one := all512(p.xor[0]), all512(p.xor[1]), all512(1)
		for i := 0; i < len(d); i += lanes512 {
			v, w := load512(a, i).Xor(m), load512(b, i).Xor(n)
			first := v.Add(w)
			sum := first.Add(one.Masked(maskOf512(carries, i)))
			save512(sum, d, i)
			carry |= bits512(first.Less(v).Or(sum.Less(first)), i)
			overflow |= bits512(negative512(v.Xor(sum).And(w.Xor(sum))), i)
		}
		archsimd.ClearAVXUpperBits()
		return carry, overflow
	},
	zeroSign: func(a *row) (zero, sign uint32) {
		for i := 0; i < len(a); i += lanes512 {
			v := load512(a, i)
			zero |= bits512(v.Equal(vec512{}), i)
			sign |= bits512(negative512(v), i)
		}
		archsimd.ClearAVXUpperBits()
		return zero, sign
	},
	order: func(a, b *row, top uint32) (less, equal uint32) {
		m := all512(top)
		for i := 0; i < len(a); i += lanes512 {
			v, w := load512(a, i).Xor(m), load512(b, i).Xor(m)
			less |= bits512(v.Less(w), i)
			equal |= bits512(v.Equal(w), i)
		}
		archsimd.ClearAVXUpperBits()
		return less, equal
	},
	orderFloat: func(a, b *row, p *params) (less, equal, greater uint32) {
		for i := 0; i < len(a); i += lanes512 {
			v, w := signed512(load512(a, i), p, 0), signed512(load512(b, i), p, 1)
			less |= bits512(v.Less(w), i)
			equal |= bits512(v.Equal(w), i)
			greater |= bits512(v.Greater(w), i)
		}
		archsimd.ClearAVXUpperBits()
		return less, equal, greater
	},
	choose: func(d, a, b *row, first uint32) {
		for i := 0; i < len(d); i += lanes512 {
			save512(load512(a, i).Merge(load512(b, i), maskOf512(first, i)), d, i)
		}
		archsimd.ClearAVXUpperBits()
	},
	sequence: func(a *row, step uint32) bool {
		first, n := all512(a[0]), all512(step)
		var equal uint32
		for i := 0; i < len(a); i += lanes512 {
			equal |= bits512(load512(a, i).Equal(load512(&laneNumbers, i).Mul(n).Add(first)), i)
		}
		archsimd.ClearAVXUpperBits()
		return equal == allLanes
	},
}

// signed512 applies the signs of source n, and makes denormals zero if asked.
func signed512(v vec512, p *params, n int) archsimd.Float32x16 {
	if p.ftz {
		v = flushed512(v)
	}
	return v.And(all512(p.and[n])).Xor(all512(p.xor[n])).AsFloat32x16()
}

func flushed512(v vec512) vec512 {
	return v.And(all512(signBit)).Merge(v, v.And(all512(exponent)).Equal(vec512{}))
}

// finish512 makes the bits of a result, see params.finish.
func finish512(v archsimd.Float32x16, p *params) vec512 {
	var bits vec512
	if p.sat {
		bits = v.Min(all512(oneBits).AsFloat32x16()).Masked(v.Greater(archsimd.Float32x16{})).AsUint32x16()
	} else {
		bits = all512(nanBits).Merge(v.AsUint32x16(), v.IsNaN())
	}
	if p.ftz {
		bits = flushed512(bits)
	}
	return bits
}

// before512 returns the lanes in which a value is less than another one: -0 is less than 0.
func before512(v, w archsimd.Float32x16) mask512 {
	return v.Less(w).Or(v.Equal(w).And(negative512(v.AsUint32x16())))
}
