//go:build amd64 && goexperiment.simd

package simd

import "simd/archsimd"

func init() {
	if archsimd.X86.AVX512() {
		fast = avx512
	}
}

// vector is half of a row.
type vector = archsimd.Uint32x16

const half = 16

func load(r *row, i int) vector    { return archsimd.LoadUint32x16((*[half]uint32)(r[i:])) }
func save(v vector, r *row, i int) { v.Store((*[half]uint32)(r[i:])) }
func all(v uint32) vector          { return archsimd.BroadcastUint32x16(v) }
func mask(lanes uint32, i int) archsimd.Mask32x16 {
	return archsimd.Mask32x16FromBits(uint16(lanes >> i))
}
func lanesOf(m archsimd.Mask32x16, i int) uint32 { return uint32(m.ToBits()) << i }

// laneNumbers has each lane's number.
var laneNumbers = func() (r row) {
	for i := range r {
		r[i] = uint32(i)
	}
	return r
}()

// avx512 are operations with 512-bit vectors.
var avx512 = rowOps{
	add: func(d, a, b, _ *row, p *params) {
		m, n, plus := all(p.xor[0]), all(p.xor[1]), all(p.plus)
		for i := 0; i < len(d); i += half {
			save(load(a, i).Xor(m).Add(load(b, i).Xor(n)).Add(plus), d, i)
		}
	},
	shiftAdd: func(d, a, b, _ *row, p *params) {
		m, n, plus, shift := all(p.xor[0]), all(p.xor[1]), all(p.plus), all(p.shift&31)
		for i := 0; i < len(d); i += half {
			save(load(a, i).ShiftLeft(shift).Xor(m).Add(load(b, i).Xor(n)).Add(plus), d, i)
		}
	},
	mul: func(d, a, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).Mul(load(b, i)), d, i)
		}
	},
	mulAdd: func(d, a, b, c *row, p *params) {
		m, n, plus := all(p.xor[0]), all(p.xor[1]), all(p.plus)
		for i := 0; i < len(d); i += half {
			save(load(a, i).Mul(load(b, i)).Xor(m).Add(load(c, i).Xor(n)).Add(plus), d, i)
		}
	},
	and: func(d, a, b, _ *row, p *params) {
		m, n := all(p.xor[0]), all(p.xor[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).Xor(m).And(load(b, i).Xor(n)), d, i)
		}
	},
	or: func(d, a, b, _ *row, p *params) {
		m, n := all(p.xor[0]), all(p.xor[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).Xor(m).Or(load(b, i).Xor(n)), d, i)
		}
	},
	xor: func(d, a, b, _ *row, p *params) {
		m := all(p.xor[0] ^ p.xor[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).Xor(load(b, i)).Xor(m), d, i)
		}
	},
	second: func(d, _, b, _ *row, p *params) {
		n := all(p.xor[1])
		for i := 0; i < len(d); i += half {
			save(load(b, i).Xor(n), d, i)
		}
	},
	shl: func(d, a, b, _ *row, p *params) {
		most := all(p.and[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).ShiftLeft(load(b, i).And(most)), d, i)
		}
	},
	shr: func(d, a, b, _ *row, p *params) {
		most := all(p.and[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).ShiftRight(load(b, i).And(most)), d, i)
		}
	},
	shrSigned: func(d, a, b, _ *row, p *params) {
		most := all(p.and[1])
		for i := 0; i < len(d); i += half {
			save(load(a, i).AsInt32x16().ShiftRight(load(b, i).And(most).AsInt32x16()).AsUint32x16(), d, i)
		}
	},
	minInt: func(d, a, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).AsInt32x16().Min(load(b, i).AsInt32x16()).AsUint32x16(), d, i)
		}
	},
	maxInt: func(d, a, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).AsInt32x16().Max(load(b, i).AsInt32x16()).AsUint32x16(), d, i)
		}
	},
	minUint: func(d, a, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).Min(load(b, i)), d, i)
		}
	},
	maxUint: func(d, a, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).Max(load(b, i)), d, i)
		}
	},
	fromInt: func(d, _, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(b, i).AsInt32x16().ConvertToFloat32().AsUint32x16(), d, i)
		}
	},
	fromUint: func(d, _, b, _ *row, _ *params) {
		for i := 0; i < len(d); i += half {
			save(load(b, i).ConvertToFloat32().AsUint32x16(), d, i)
		}
	},
	addFloat: func(d, a, b, _ *row, p *params) {
		for i := 0; i < len(d); i += half {
			save(finish(signed(a, i, p, 0).Add(signed(b, i, p, 1)), p), d, i)
		}
	},
	mulFloat: func(d, a, b, _ *row, p *params) {
		for i := 0; i < len(d); i += half {
			save(finish(signed(a, i, p, 0).Mul(signed(b, i, p, 1)), p), d, i)
		}
	},
	fma: func(d, a, b, c *row, p *params) {
		for i := 0; i < len(d); i += half {
			save(finish(signed(a, i, p, 0).MulAdd(signed(b, i, p, 1), signed(c, i, p, 2)), p), d, i)
		}
	},
	rcp: func(d, a, _, _ *row, p *params) {
		one := archsimd.BroadcastFloat32x16(1)
		for i := 0; i < len(d); i += half {
			save(finish(one.Div(signed(a, i, p, 0)), p), d, i)
		}
	},
	minFloat: func(d, a, b, _ *row, p *params) {
		for i := 0; i < len(d); i += half {
			v, w := signed(a, i, p, 0), signed(b, i, p, 1)
			save(finish(v.Merge(w, before(v, w).Or(w.IsNaN())), p), d, i)
		}
	},
	maxFloat: func(d, a, b, _ *row, p *params) {
		for i := 0; i < len(d); i += half {
			v, w := signed(a, i, p, 0), signed(b, i, p, 1)
			save(finish(w.Merge(v, before(v, w).Or(v.IsNaN())), p), d, i)
		}
	},
	addCarry: func(d, a, b *row, p *params, carries uint32) (carry, overflow uint32) {
		m, n, one, zero := all(p.xor[0]), all(p.xor[1]), all(1), archsimd.Int32x16{}
		for i := 0; i < len(d); i += half {
			v, w := load(a, i).Xor(m), load(b, i).Xor(n)
			first := v.Add(w)
			sum := first.Add(one.Masked(mask(carries, i)))
			save(sum, d, i)
			carry |= lanesOf(first.Less(v).Or(sum.Less(first)), i)
			overflow |= lanesOf(v.Xor(sum).And(w.Xor(sum)).AsInt32x16().Less(zero), i)
		}
		return carry, overflow
	},
	zeroSign: func(a *row) (zero, sign uint32) {
		for i := 0; i < len(a); i += half {
			v := load(a, i)
			zero |= lanesOf(v.Equal(vector{}), i)
			sign |= lanesOf(v.AsInt32x16().Less(archsimd.Int32x16{}), i)
		}
		return zero, sign
	},
	order: func(a, b *row, top uint32) (less, equal uint32) {
		m := all(top)
		for i := 0; i < len(a); i += half {
			v, w := load(a, i).Xor(m), load(b, i).Xor(m)
			less |= lanesOf(v.Less(w), i)
			equal |= lanesOf(v.Equal(w), i)
		}
		return less, equal
	},
	orderFloat: func(a, b *row, p *params) (less, equal, greater uint32) {
		for i := 0; i < len(a); i += half {
			v, w := signed(a, i, p, 0), signed(b, i, p, 1)
			less |= lanesOf(v.Less(w), i)
			equal |= lanesOf(v.Equal(w), i)
			greater |= lanesOf(v.Greater(w), i)
		}
		return less, equal, greater
	},
	choose: func(d, a, b *row, first uint32) {
		for i := 0; i < len(d); i += half {
			save(load(a, i).Merge(load(b, i), mask(first, i)), d, i)
		}
	},
	sequence: func(a *row, step uint32) bool {
		first, n := all(a[0]), all(step)
		return load(a, 0).Equal(load(&laneNumbers, 0).Mul(n).Add(first)).ToBits()&
			load(a, half).Equal(load(&laneNumbers, half).Mul(n).Add(first)).ToBits() == 1<<half-1
	},
}

// signed applies the signs of source n, and makes denormals zero if asked.
func signed(r *row, i int, p *params, n int) archsimd.Float32x16 {
	v := load(r, i)
	if p.ftz {
		v = flushed(v)
	}
	return v.And(all(p.and[n])).Xor(all(p.xor[n])).AsFloat32x16()
}

func flushed(v vector) vector {
	return v.And(all(signBit)).Merge(v, v.And(all(exponent)).Equal(vector{}))
}

// finish makes the bits of a result, see params.finish.
func finish(v archsimd.Float32x16, p *params) vector {
	var bits vector
	if p.sat {
		bits = v.Min(archsimd.BroadcastFloat32x16(1)).Masked(v.Greater(archsimd.Float32x16{})).AsUint32x16()
	} else {
		bits = all(nanBits).Merge(v.AsUint32x16(), v.IsNaN())
	}
	if p.ftz {
		bits = flushed(bits)
	}
	return bits
}

// before returns the lanes in which a value is less than another one: -0 is less than 0.
func before(v, w archsimd.Float32x16) archsimd.Mask32x16 {
	negative := v.AsInt32x16().Less(archsimd.Int32x16{})
	return v.Less(w).Or(v.Equal(w).And(negative))
}
