package interp

import "math"

// The rounding modes of isa.Round.
const (
	nearest = iota
	down
	up
	toZero
)

const nanBits = 0x7fffffff

// flush makes a denormal zero.
func flush(bits uint32) uint32 {
	if bits&0x7f800000 == 0 {
		return bits & (1 << 31)
	}
	return bits
}

func canonical(v float32) uint32 {
	if v != v {
		return nanBits
	}
	return math.Float32bits(v)
}

func canonical64(v float64) uint64 {
	if v != v {
		return 0xfff8000000000000
	}
	return math.Float64bits(v)
}

// saturate clamps to 0..1. NaN becomes zero.
func saturate(v float64) float64 {
	if v > 0 {
		return min(v, 1)
	}
	return 0
}

// AddOdd adds, and rounds to odd: an inexact sum is the one of its two neighbours whose last bit
// is set. Such a sum of values of 24 or 48 bits rounds to 24 bits as the exact one does.
func AddOdd(a, b float64) float64 {
	s := a + b
	if math.IsInf(s, 0) || s != s {
		return s
	}
	t := s - a
	rest := (a - (s - t)) + (b - t)
	if rest == 0 || math.Float64bits(s)&1 != 0 {
		return s
	}
	return math.Nextafter(s, math.Inf(sign(rest)))
}

func sign(v float64) int {
	if v < 0 {
		return -1
	}
	return 1
}

// narrow rounds to 24 bits. The sign of a zero is that of v.
func narrow(v float64, mode uint8) float32 {
	f := float32(v)
	switch {
	case v != v || math.IsInf(v, 0):
	case mode == down && float64(f) > v, mode == toZero && v > 0 && float64(f) > v:
		f = math.Nextafter32(f, float32(math.Inf(-1)))
	case mode == up && float64(f) < v, mode == toZero && v < 0 && float64(f) < v:
		f = math.Nextafter32(f, float32(math.Inf(1)))
	}
	return f
}

// zeroSum is the sign of an exact zero sum: minus when rounding down, unless both are plus.
func zeroSum(s, a, b float64, mode uint8) float64 {
	if s == 0 && mode == down && (math.Signbit(a) || math.Signbit(b)) {
		return math.Copysign(0, -1)
	}
	return s
}

// minMax drops a NaN, and takes -0 to be less than 0.
func minMax(a, b float64, smaller bool) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case a < b || a == b && math.Signbit(a):
		if smaller {
			return a
		}
		return b
	case smaller:
		return b
	}
	return a
}

// integral rounds to an integer.
func integral(v float64, mode uint8) float64 {
	switch mode {
	case down:
		return math.Floor(v)
	case up:
		return math.Ceil(v)
	case toZero:
		return math.Trunc(v)
	}
	return math.RoundToEven(v)
}

// half widens 16 bits.
func half(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&0x3ff)
	var v float64
	switch exp {
	case 31:
		v = math.Inf(1)
		if frac != 0 {
			return math.NaN()
		}
	case 0:
		v = math.Ldexp(frac, -24)
	default:
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}

// toHalf rounds to 16 bits.
func toHalf(v float64, mode uint8) uint16 {
	var signBit uint16
	if math.Signbit(v) {
		signBit = 1 << 15
	}
	switch a := math.Abs(v); {
	case v != v:
		return 0x7fff
	case math.IsInf(v, 0):
		return signBit | 0x7c00
	default:
		// Count in units of the last place: of denormals at least.
		_, exp := math.Frexp(a)
		unit := max(exp-11, -24)
		n := integral(math.Ldexp(v, -unit), mode)
		if a = math.Ldexp(math.Abs(n), unit); a > 65504 {
			if mode == toZero || mode == down && signBit == 0 || mode == up && signBit != 0 {
				return signBit | 0x7bff
			}
			return signBit | 0x7c00
		}
		if a < 0x1p-14 {
			return signBit | uint16(math.Ldexp(a, 24))
		}
		frac, exp := math.Frexp(a)
		return signBit | uint16(exp+14)<<10 | uint16(frac*2048)&0x3ff
	}
}
