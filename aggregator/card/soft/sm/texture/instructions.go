package texture

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// empty reports whether an image has no texels. Nothing is read then.
func (s *sampling) empty() bool {
	return s.header.Width == 0 || s.image.Layers == 0 || s.image.Size[2] == 0
}

func (r *request) sampled(lane int) (colour, error) {
	if r.empty() {
		return colour{}, nil
	}
	p := r.position(lane)
	detail := 0
	switch {
	case r.in.Op == isa.TexGrad:
		detail = r.given(lane)
	case r.in.Mod[isa.Lod] == lodGiven:
		detail = detailOf(r.B[r.lod][lane])
	case r.in.Mod[isa.Lod] == lodBias:
		detail = r.differences(lane) + detailOf(r.B[r.lod][lane])
	case r.in.Mod[isa.Lod] == lodAuto:
		detail = r.differences(lane)
	}
	return r.sample(&p, r.limit(detail))
}

// given is the level of detail that follows from the derivatives in B: by X and by Y for
// each coordinate.
func (r *request) given(lane int) int {
	var d derivatives
	for i := range r.count {
		for by := range d {
			d[by][i] = r.scale(i) * float64(math.Float32frombits(r.B[(2*i+by)&3][lane]))
		}
	}
	return d.detail()
}

// scale turns a derivative into texels of the first level.
func (r *request) scale(dim int) float64 {
	if r.header.Normalized == 0 {
		return 1
	}
	return float64(r.image.at(int(r.header.MinLevel), dim))
}

// differences is the level of detail that follows from the coordinates of the lane's neighbours:
// the lanes of a quad, of which the first is left and above.
func (r *request) differences(lane int) int {
	var d derivatives
	quad := lane &^ 3
	at := func(i, lane int) float64 { return float64(math.Float32frombits(r.A[r.coordinates+i][lane])) }
	for i := range r.count {
		scale := r.scale(min(i, 1))
		if r.isCube() {
			scale /= 2 // a face is as long as two units
		} else {
			scale = r.scale(i)
		}
		d[0][i] = scale * (at(i, quad+1) - at(i, quad))
		d[1][i] = scale * (at(i, quad+2) - at(i, quad))
	}
	return d.detail()
}

// fetched reads a texel by its integer coordinates. Outside of the image it reads zeros.
func (r *request) fetched(lane int) (colour, error) {
	var at [3]uint64
	var offset [3]int
	if r.offset >= 0 {
		offset = offsets(r.B[r.offset][lane])
	}
	i := uint64(r.header.MinLevel)
	if r.lod >= 0 {
		i += uint64(r.B[r.lod][lane])
	}
	if i > uint64(min(r.header.MaxLevel, r.header.LastLevel)) || r.empty() {
		return colour{}, nil
	}
	for dim := range r.dims() {
		x := int64(int32(r.A[r.coordinates+dim][lane])) + int64(offset[dim])
		if x < 0 || uint64(x) >= r.image.at(int(i), dim) {
			return colour{}, nil
		}
		at[dim] = uint64(x)
	}
	layer := uint64(0)
	if r.array {
		if layer = uint64(r.A[0][lane] & handleArray); layer >= r.image.Layers {
			return colour{}, nil
		}
	}
	return r.read(int(i), at[0], at[1], at[2], layer)
}

// gathered returns a component of four texels: those around the coordinates with an offset, or
// one at each of four offsets.
func (r *request) gathered(lane int) (colour, error) {
	if r.empty() {
		return colour{}, nil
	}
	p := r.position(lane)
	component := r.in.Mod[isa.Component]
	if r.offset < 0 {
		return r.gather(&p, component)
	}
	at := func(n int) (o [3]int) {
		v := r.B[r.offset+n/2][lane] >> (16 * (n & 1))
		return [3]int{int(int8(v)), int(int8(v >> 8))}
	}
	if r.in.Mod[isa.Offsets] != gatherOffsets {
		p.offset = at(0)
		return r.gather(&p, component)
	}
	var out colour
	for n := range out {
		p.offset = at(n)
		c, err := r.gather(&p, component)
		if err != nil {
			return out, err
		}
		out[n] = c[3] // the texel of the offset itself
	}
	return out, nil
}
