package texture

import "math"

// A cube's faces: positive and negative X, Y and Z. For each axis, the directions in which S and T
// grow on its faces, for the positive and the negative face. Source: the GL specification, table 8.19.
var cubeAxes = [3]struct{ s, t [2]axis }{
	{s: [2]axis{{2, -1}, {2, 1}}, t: [2]axis{{1, -1}, {1, -1}}},
	{s: [2]axis{{0, 1}, {0, 1}}, t: [2]axis{{2, 1}, {2, -1}}},
	{s: [2]axis{{0, 1}, {0, -1}}, t: [2]axis{{1, -1}, {1, -1}}},
}

// axis is a dimension and a sign.
type axis struct {
	dim  int
	sign float64
}

// face returns which face a direction hits, and where: from 0 to 1.
func face(v [3]float64) (face int, s, t float64) {
	major := 0
	for i := 1; i < 3; i++ {
		if math.Abs(number(v[i])) > math.Abs(number(v[major])) {
			major = i
		}
	}
	side := 0
	if v[major] < 0 {
		side = 1
	}
	length := math.Abs(v[major])
	if length == 0 {
		return 0, 0.5, 0.5
	}
	a := &cubeAxes[major]
	at := func(x axis) float64 { return (number(v[x.dim]*x.sign/length) + 1) / 2 }
	return major*2 + side, at(a.s[side]), at(a.t[side])
}

// across returns the texel beyond the edge of a face of n by n texels: that of the neighbour. A
// texel beyond a corner is that at the corner.
func across(f, x, y, n int) (face2, x2, y2 int) {
	outX, outY := x < 0 || x >= n, y < 0 || y >= n
	if !outX && !outY || outX && outY {
		return f, edge(x, n), edge(y, n)
	}
	center := func(i int) float64 { return 2*(float64(i)+0.5)/float64(n) - 1 }
	major, side := f/2, f%2
	a := &cubeAxes[major]
	var v [3]float64
	v[major] = float64(1 - 2*side)
	v[a.s[side].dim] = center(x) * a.s[side].sign
	v[a.t[side].dim] = center(y) * a.t[side].sign
	f2, s, t := face(v)
	return f2, edge(int(s*float64(n)), n), edge(int(t*float64(n)), n)
}
