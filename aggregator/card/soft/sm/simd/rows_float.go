package simd

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

const (
	signBit  = 1 << 31
	exponent = 0x7f800000
	nanBits  = 0x7fffffff
	oneBits  = 0x3f800000
)

// float applies the signs of source n, and makes a denormal zero if asked.
func (p *params) float(n int, bits uint32) float32 {
	if p.ftz && bits&exponent == 0 {
		bits &= signBit
	}
	return math.Float32frombits(bits&p.and[n] ^ p.xor[n])
}

// finish makes the bits of a result: saturated, with one NaN, flushed.
func (p *params) finish(v float32) uint32 {
	switch {
	case p.sat && v > 0:
		v = min(v, 1)
	case p.sat:
		v = 0
	case v != v:
		return nanBits
	}
	bits := math.Float32bits(v)
	if p.ftz && bits&exponent == 0 {
		bits &= signBit
	}
	return bits
}

// simple reports whether there are only signs to be inverted.
func (p *params) simple() bool { return !p.ftz && !p.sat && p.and[0]&p.and[1]&p.and[2] == allLanes }

// one makes the bits of a value, with one NaN.
func one(v float32) uint32 {
	if v != v {
		return nanBits
	}
	return math.Float32bits(v)
}

func addFloat(d, a, b, _ *row, p *params) {
	if p.simple() {
		m, n := p.xor[0], p.xor[1]
		for i := range d {
			d[i] = one(math.Float32frombits(a[i]^m) + math.Float32frombits(b[i]^n))
		}
		return
	}
	for i := range d {
		d[i] = p.finish(p.float(0, a[i]) + p.float(1, b[i]))
	}
}

func mulFloat(d, a, b, _ *row, p *params) {
	if p.simple() {
		m := p.xor[0] ^ p.xor[1]
		for i := range d {
			d[i] = one(math.Float32frombits(a[i]^m) * math.Float32frombits(b[i]))
		}
		return
	}
	for i := range d {
		d[i] = p.finish(p.float(0, a[i]) * p.float(1, b[i]))
	}
}

func fma(d, a, b, c *row, p *params) {
	if p.simple() {
		m, n := p.xor[0]^p.xor[1], p.xor[2]
		for i := range d {
			v, w := float64(math.Float32frombits(a[i]^m))*float64(math.Float32frombits(b[i])), float64(math.Float32frombits(c[i]^n))
			s := v + w
			if unsure(s) {
				s = interp.AddOdd(v, w)
			}
			d[i] = one(float32(s))
		}
		return
	}
	for i := range d {
		d[i] = p.finish(fma32(p.float(0, a[i]), p.float(1, b[i]), p.float(2, c[i])))
	}
}

// fma32 rounds once. The product is exact; a sum of which 53 bits do not tell how it rounds to 24 is
// rounded to odd first.
func fma32(a, b, c float32) float32 {
	p, w := float64(a)*float64(b), float64(c)
	s := p + w
	if unsure(s) {
		s = interp.AddOdd(p, w)
	}
	return float32(s)
}

// unsure reports whether a rounded sum is in the middle between two floats of 24 bits, or is where they
// lie further apart.
func unsure(s float64) bool {
	return math.Float64bits(s)&(1<<29-1) == 1<<28 || math.Abs(s) < 0x1p-126 && s != 0
}

// rcp divides with 24 bits, which gives what interp rounds from 53: they are more than twice as many.
func rcp(d, a, _, _ *row, p *params) {
	for i := range d {
		d[i] = p.finish(1 / p.float(0, a[i]))
	}
}

func minFloat(d, a, b, _ *row, p *params) {
	for i := range d {
		v, w := p.float(0, a[i]), p.float(1, b[i])
		if w != w || v < w || v == w && math.Signbit(float64(v)) {
			w = v
		}
		d[i] = p.finish(w)
	}
}

func maxFloat(d, a, b, _ *row, p *params) {
	for i := range d {
		v, w := p.float(0, a[i]), p.float(1, b[i])
		if v != v || v < w || v == w && math.Signbit(float64(v)) {
			v = w
		}
		d[i] = p.finish(v)
	}
}

func orderFloat(a, b *row, p *params) (less, equal, greater uint32) {
	for i := range a {
		v, w := p.float(0, a[i]), p.float(1, b[i])
		less |= bit(v < w) << i
		equal |= bit(v == w) << i
		greater |= bit(v > w) << i
	}
	return less, equal, greater
}

func bit(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}
