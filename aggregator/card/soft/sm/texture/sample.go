package texture

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Filters: MAG_FILTER and MIN_FILTER, then MIP_FILTER.
const (
	filterPoint  = 1
	filterLinear = 2

	mipNone   = 1
	mipPoint  = 2
	mipLinear = 3
)

// depthTests are DEPTH_COMPARE_FUNC: whether the reference passes against the texel.
var depthTests = [8]func(reference, texel float32) bool{
	func(_, _ float32) bool { return false },
	func(r, t float32) bool { return r < t },
	func(r, t float32) bool { return r == t },
	func(r, t float32) bool { return r <= t },
	func(r, t float32) bool { return r > t },
	func(r, t float32) bool { return r != t },
	func(r, t float32) bool { return r >= t },
	func(_, _ float32) bool { return true },
}

// sampling is an image with a sampler.
type sampling struct {
	memory interp.Memory
	header Header
	format *texelFormat
	image  Image
	sampler
	seamless bool // filters cross the edges of a cube's faces
	compare  bool // with a reference
	texel    [16]byte
}

type sampler struct {
	Sampler
	border colour
}

// setBorder converts the border's colour. It is what a program gets: its components have no
// sources.
func (s *sampling) setBorder() {
	s.border = s.Border
	if s.header.SRGB != 0 && s.ConvertsFromSRGB != 0 {
		for i, v := range s.SRGBBorder {
			s.border[i] = math.Float32bits(float32(FromSRGB(float64(v) / 255)))
		}
	}
}

// position is where an instruction samples, in one lane.
type position struct {
	at        [3]float64 // in sizes of the image, or in texels if they are not normalized
	layer     uint64
	face      int
	offset    [3]int // in texels
	reference float32
}

// dims returns how many dimensions a layer has.
func (s *sampling) dims() int {
	switch s.header.Target {
	case oneD, oneDArray, buffer:
		return 1
	case threeD:
		return 3
	}
	return 2
}

func (s *sampling) isCube() bool { return s.header.Target == cube || s.header.Target == cubeArray }

// texels turns a coordinate into texels of a level.
func (s *sampling) texels(p *position, dim, level int) float64 {
	x := p.at[dim]
	if s.header.Normalized != 0 {
		x *= float64(s.image.at(level, dim))
	}
	return number(x) + float64(p.offset[dim])
}

// mode is how coordinates wrap. Faces of cubes end at their edges, or go on with their
// neighbours.
func (s *sampling) mode(dim int) uint32 {
	if s.isCube() {
		return 2
	}
	return s.Wrap[dim]
}

// taps finds the texels of a filter in a level.
func (s *sampling) taps(p *position, level int, linear bool) (taps [3][2]tap) {
	taps[1], taps[2] = [2]tap{{0, one}, {0, 0}}, [2]tap{{0, one}, {0, 0}}
	for dim := range s.dims() {
		x, n := s.texels(p, dim, level), s.image.at(level, dim)
		if linear {
			taps[dim] = s.pair(dim, x, n)
		} else {
			taps[dim] = nearestTap(s.mode(dim), x, n)
		}
	}
	return taps
}

// pair finds the two texels of a linear filter in a dimension.
func (s *sampling) pair(dim int, x float64, size uint64) [2]tap {
	if s.isCube() && s.seamless {
		return beyond(x, size)
	}
	return linearTaps(s.mode(dim), x, size)
}

// beyond is linearTaps for a cube's face, whose texels may be one beyond an edge.
func beyond(x float64, size uint64) [2]tap {
	steps := int(math.Floor((max(0, min(number(x), float64(size)))-0.5)*one + 0.5))
	return [2]tap{{steps >> 8, one - steps&(one-1)}, {steps>>8 + 1, steps & (one - 1)}}
}

// fetch reads a texel by the index of a tap in each dimension.
func (s *sampling) fetch(p *position, level, x, y, z int) (colour, error) {
	f := p.face
	if s.isCube() && s.seamless {
		f, x, y = across(f, x, y, int(s.image.at(level, 0)))
	}
	if x == outside || y == outside || z == outside {
		return s.compared(s.border, p), nil
	}
	c, err := s.read(level, uint64(x), uint64(y), uint64(z), p.layer+uint64(f))
	if err != nil {
		return c, err
	}
	return s.compared(c, p), nil
}

// read reads a texel that is inside of the image.
func (s *sampling) read(level int, x, y, z, layer uint64) (colour, error) {
	to := s.texel[:s.format.bytes]
	if err := s.memory.Load(s.image.At(level, x, y, z, layer), to); err != nil {
		return colour{}, err
	}
	return s.header.swizzle(s.format.stored(&s.header, to, true)), nil
}

// compared replaces a depth by what the comparison with the reference gives.
func (s *sampling) compared(c colour, p *position) colour {
	if !s.compare {
		return c
	}
	reference, depth := p.reference, c[0]
	for i, source := range s.header.Sources {
		if source >= sourceFirst && source < sourceOneInt {
			depth = c[i]
			break
		}
	}
	if t := s.header.Types[0]; t == unsignedNormal {
		reference = max(0, min(reference, 1))
	}
	result := uint32(0)
	if depthTests[s.Func&7](reference, math.Float32frombits(depth)) {
		result = math.Float32bits(1)
	}
	return s.header.swizzle(colour{result, result, result, result})
}

// filter samples a level.
func (s *sampling) filter(p *position, level int, linear bool) (colour, error) {
	linear = linear && (!s.header.integer() || s.compare)
	taps := s.taps(p, level, linear)
	if !linear {
		return s.fetch(p, level, taps[0][0].index, taps[1][0].index, taps[2][0].index)
	}
	var sum [4]float64
	for _, z := range taps[2] {
		for _, y := range taps[1] {
			for _, x := range taps[0] {
				weight := x.weight * y.weight * z.weight
				if weight == 0 {
					continue
				}
				c, err := s.fetch(p, level, x.index, y.index, z.index)
				if err != nil {
					return colour{}, err
				}
				for i := range sum {
					sum[i] += float64(weight) * float64(math.Float32frombits(c[i]))
				}
			}
		}
	}
	return rounded(sum, one*one*one), nil
}

func rounded(sum [4]float64, whole float64) (c colour) {
	for i, v := range sum {
		c[i] = math.Float32bits(float32(v / whole))
	}
	return c
}

// sample samples at a level of detail, in 1/256 and relative to the first level that programs
// see.
func (s *sampling) sample(p *position, detail int) (colour, error) {
	first, last := int(s.header.MinLevel), int(min(s.header.MaxLevel, s.header.LastLevel))
	last = max(first, last)
	linear := s.Mag == filterLinear
	if detail > 0 {
		linear = s.Min == filterLinear
	}
	level := func(i int) int { return max(first, min(first+i, last)) }
	switch s.Mip {
	case mipPoint:
		return s.filter(p, level((detail+one/2-1)>>8), linear)
	case mipLinear:
		lower, higher, f := level(detail>>8), level(detail>>8+1), detail&(one-1)
		if detail <= 0 || lower == higher || f == 0 || s.header.integer() && !s.compare {
			return s.filter(p, level(max(0, detail)>>8), linear)
		}
		a, err := s.filter(p, lower, linear)
		if err != nil {
			return a, err
		}
		b, err := s.filter(p, higher, linear)
		if err != nil {
			return b, err
		}
		var sum [4]float64
		for i := range sum {
			sum[i] = float64(one-f)*float64(math.Float32frombits(a[i])) + float64(f)*float64(math.Float32frombits(b[i]))
		}
		return rounded(sum, one), nil
	}
	return s.filter(p, first, linear)
}

// gather returns one component of the four texels of a linear filter.
func (s *sampling) gather(p *position, component uint8) (out colour, err error) {
	level := int(s.header.MinLevel)
	var taps [2][2]tap
	for dim := range taps {
		// What weights would round away must not choose other texels.
		x, n := s.texels(p, dim, level), s.image.at(level, dim)
		taps[dim] = s.pair(dim, math.Floor(number(x)-0.5)+1, n)
	}
	for i, at := range [4][2]int{{0, 1}, {1, 1}, {1, 0}, {0, 0}} {
		c, err := s.fetch(p, level, taps[0][at[0]].index, taps[1][at[1]].index, 0)
		if err != nil {
			return out, err
		}
		out[i] = c[component&3]
	}
	return out, nil
}
