package texture

import "math"

// derivatives are how coordinates change to the right and down: by X or Y, then by coordinate, in
// texels of the first level.
type derivatives [2][3]float64

// detail returns the level of detail at which a texel is a pixel, in 1/256.
func (d *derivatives) detail() int {
	var longest float64
	for _, v := range d {
		longest = max(longest, number(v[0]*v[0]+v[1]*v[1]+v[2]*v[2]))
	}
	if longest == 0 {
		return -maxLevels * one
	}
	return int(math.Floor(math.Log2(longest)/2*one + 0.5))
}

// detailOf converts a level of detail that a program gave.
func detailOf(v uint32) int {
	x := number(float64(math.Float32frombits(v)))
	return int(math.Floor(max(-maxLevels, min(x, maxLevels))*one + 0.5))
}

// limit applies the sampler's and the image's biases and bounds.
func (s *sampling) limit(detail int) int {
	detail += fixed(s.Bias) + fixed(s.header.Bias)
	return max(int(s.MinLevel), min(detail, int(s.MaxLevel)))
}
