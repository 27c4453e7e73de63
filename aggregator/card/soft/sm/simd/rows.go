package simd

import (
	"math"
	"math/bits"
)

// rowOps are operations on rows. The masks that they return have a bit for each lane.
type rowOps struct {
	add, shiftAdd, mul, mulAdd                  rowOp
	and, or, xor, second                        rowOp
	shl, shr, shrSigned                         rowOp // b is and[1]
	minInt, maxInt, minUint, maxUint            rowOp
	addFloat, mulFloat, fma, minFloat, maxFloat rowOp
	fromInt, fromUint                           rowOp // floats of b
	rcp                                         rowOp // of a
	addCarry                                    func(d, a, b *row, p *params, carries uint32) (carry, overflow uint32)
	zeroSign                                    func(a *row) (zero, sign uint32)
	order                                       func(a, b *row, top uint32) (less, equal uint32)
	orderFloat                                  func(a, b *row, p *params) (less, equal, greater uint32)
	choose                                      func(d, a, b *row, first uint32)
	sequence                                    func(a *row, step uint32) bool // from the first lane on
}

// fast are the fastest that this processor can run, and vectors their name. They are chosen at the start.
var fast, vectors = plain, "plain"

// Vectors names the fastest: "AVX2" or "plain".
func Vectors() string { return vectors }

// plain are operations in plain Go.
var plain = rowOps{
	add: func(d, a, b, _ *row, p *params) {
		m, n, plus := p.xor[0], p.xor[1], p.plus
		for i := range d {
			d[i] = (a[i] ^ m) + (b[i] ^ n) + plus
		}
	},
	shiftAdd: func(d, a, b, _ *row, p *params) {
		m, n, plus, shift := p.xor[0], p.xor[1], p.plus, p.shift&31
		for i := range d {
			d[i] = (a[i]<<shift ^ m) + (b[i] ^ n) + plus
		}
	},
	mul: func(d, a, b, _ *row, _ *params) {
		for i := range d {
			d[i] = a[i] * b[i]
		}
	},
	mulAdd: func(d, a, b, c *row, p *params) {
		m, n, plus := p.xor[0], p.xor[1], p.plus
		for i := range d {
			d[i] = (a[i]*b[i] ^ m) + (c[i] ^ n) + plus
		}
	},
	and: func(d, a, b, _ *row, p *params) {
		m, n := p.xor[0], p.xor[1]
		for i := range d {
			d[i] = (a[i] ^ m) & (b[i] ^ n)
		}
	},
	or: func(d, a, b, _ *row, p *params) {
		m, n := p.xor[0], p.xor[1]
		for i := range d {
			d[i] = (a[i] ^ m) | (b[i] ^ n)
		}
	},
	xor: func(d, a, b, _ *row, p *params) {
		m := p.xor[0] ^ p.xor[1]
		for i := range d {
			d[i] = a[i] ^ b[i] ^ m
		}
	},
	second: func(d, _, b, _ *row, p *params) {
		n := p.xor[1]
		for i := range d {
			d[i] = b[i] ^ n
		}
	},
	shl: func(d, a, b, _ *row, p *params) {
		most := p.and[1]
		for i := range d {
			d[i] = a[i] << (b[i] & most)
		}
	},
	shr: func(d, a, b, _ *row, p *params) {
		most := p.and[1]
		for i := range d {
			d[i] = a[i] >> (b[i] & most)
		}
	},
	shrSigned: func(d, a, b, _ *row, p *params) {
		most := p.and[1]
		for i := range d {
			d[i] = uint32(int32(a[i]) >> (b[i] & most))
		}
	},
	minInt: func(d, a, b, _ *row, _ *params) {
		for i := range d {
			d[i] = uint32(min(int32(a[i]), int32(b[i])))
		}
	},
	maxInt: func(d, a, b, _ *row, _ *params) {
		for i := range d {
			d[i] = uint32(max(int32(a[i]), int32(b[i])))
		}
	},
	minUint: func(d, a, b, _ *row, _ *params) {
		for i := range d {
			d[i] = min(a[i], b[i])
		}
	},
	maxUint: func(d, a, b, _ *row, _ *params) {
		for i := range d {
			d[i] = max(a[i], b[i])
		}
	},
	fromInt: func(d, _, b, _ *row, _ *params) {
		for i := range d {
			d[i] = math.Float32bits(float32(int32(b[i])))
		}
	},
	fromUint: func(d, _, b, _ *row, _ *params) {
		for i := range d {
			d[i] = math.Float32bits(float32(int64(b[i])))
		}
	},
	rcp: rcp, addFloat: addFloat, mulFloat: mulFloat, fma: fma, minFloat: minFloat, maxFloat: maxFloat,
	addCarry: func(d, a, b *row, p *params, carries uint32) (carry, overflow uint32) {
		m, n := p.xor[0], p.xor[1]
		for i := range d {
			v, w := a[i]^m, b[i]^n
			sum, out := bits.Add32(v, w, carries>>i&1)
			d[i] = sum
			carry |= out << i
			overflow |= (v ^ sum) & (w ^ sum) >> 31 << i
		}
		return carry, overflow
	},
	zeroSign: func(a *row) (zero, sign uint32) {
		for i, v := range a {
			zero |= ^(v | -v) >> 31 << i
			sign |= v >> 31 << i
		}
		return zero, sign
	},
	order: func(a, b *row, top uint32) (less, equal uint32) {
		for i := range a {
			v, w := a[i]^top, b[i]^top
			less |= uint32((uint64(v)-uint64(w))>>63) << i
			equal |= uint32((uint64(v^w)-1)>>63) << i
		}
		return less, equal
	},
	orderFloat: orderFloat,
	choose: func(d, a, b *row, first uint32) {
		for i := range d {
			m := -(first >> i & 1)
			d[i] = a[i]&m | b[i]&^m
		}
	},
	sequence: func(a *row, step uint32) bool {
		var differ uint32
		for i := range a {
			differ |= a[i] - a[0] - uint32(i)*step
		}
		return differ == 0
	},
}

// mergeRows writes some lanes.
func mergeRows(to, from *row, lanes uint32) { fast.choose(to, from, to, lanes) }
