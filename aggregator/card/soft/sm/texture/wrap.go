package texture

import "math"

// outside is the index of a texel that is the border.
const outside = -1

// wraps turn a texel's index in a dimension of n texels into one that is there, by
// ADDRESS_U. Source: the GL specification, section 8.14.2.
var wraps = [8]struct {
	// limit brings a coordinate, in texels, close to the texels.
	limit func(x, n float64) float64
	index func(i, n int) int
}{
	0: {repeat(1), func(i, n int) int { return (i%n + n) % n }},
	1: {repeat(2), func(i, n int) int {
		if i = (i%(2*n) + 2*n) % (2 * n); i >= n {
			return 2*n - 1 - i
		}
		return i
	}},
	2: {near, edge},
	3: {near, border},
	4: {inside, border},
	5: {mirror(near), edge},
	6: {mirror(near), border},
	7: {mirror(inside), border},
}

func repeat(times float64) func(x, n float64) float64 {
	return func(x, n float64) float64 { return x - math.Floor(x/(n*times))*n*times }
}

// near keeps coordinates small enough for integers.
func near(x, n float64) float64   { return max(-2, min(x, n+2)) }
func inside(x, n float64) float64 { return max(0, min(x, n)) }

// mirror is the half that is mirrored: what is left of it is where its mirror image is.
func mirror(f func(x, n float64) float64) func(x, n float64) float64 {
	return func(x, n float64) float64 { return f(math.Abs(x), n) }
}

func edge(i, n int) int { return max(0, min(i, n-1)) }

func border(i, n int) int {
	if i < 0 || i >= n {
		return outside
	}
	return i
}

// tap is a texel of a filter, in one dimension, and its weight in 1/256.
type tap struct{ index, weight int }

const one = 256

// nearestTap returns the texel at a coordinate in texels.
func nearestTap(mode uint32, x float64, size uint64) [2]tap {
	w, n := &wraps[mode&7], int(size)
	x = number(x)
	at := w.limit(x, float64(n))
	i := int(math.Floor(at))
	if x < 0 && (mode == 5 || mode == 6) { // a texel has its left edge, so its mirror image the right one
		i = int(math.Ceil(at)) - 1
	}
	if mode == 4 || mode == 7 { // the end belongs to the last texel
		i = min(i, n-1)
	}
	return [2]tap{{w.index(i, n), one}, {0, 0}}
}

// linearTaps returns the two texels around a coordinate. Their weights have 8 bits.
func linearTaps(mode uint32, x float64, size uint64) [2]tap {
	w, n := &wraps[mode&7], int(size)
	x = w.limit(number(x), float64(n)) - 0.5
	steps := int(math.Floor(x*one + 0.5))
	i, f := steps>>8, steps&(one-1)
	// Before the first texel of a mirrored image is the first texel.
	first := i
	if i < 0 && mode >= 5 {
		first = -1 - i
	}
	return [2]tap{{w.index(first, n), one - f}, {w.index(i+1, n), f}}
}

// number is a coordinate without NaN and infinities.
func number(x float64) float64 {
	if x != x {
		return 0
	}
	return max(-1<<60, min(x, 1<<60))
}
