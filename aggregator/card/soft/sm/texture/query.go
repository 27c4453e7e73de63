package texture

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Queries by isa.Query.
const (
	queryDims = 0
	queryType = 1
)

// queried tells a program of an image: its size in a level and the number of levels, or its
// samples.
func (r *request) queried(lane int) (c colour, err error) {
	switch q := r.in.Mod[isa.Query]; q {
	case queryDims:
	case queryType:
		return colour{2: 1}, nil
	default:
		return c, fmt.Errorf("query %d of a texture", q)
	}
	first, last := r.header.MinLevel, min(r.header.MaxLevel, r.header.LastLevel)
	c[3] = max(first, last) - first + 1
	at := 0
	if r.in.Mod[isa.Indirect] != 0 {
		at = 1
	}
	i := uint64(first) + uint64(r.A[at][lane])
	if i > uint64(last) {
		return c, nil
	}
	size := func(dim int) uint32 { return uint32(r.image.at(int(i), dim)) }
	c[0], c[1] = size(0), size(1)
	switch r.header.Target {
	case oneDArray:
		c[1] = r.header.Depth
	case twoDArray, cubeArray:
		c[2] = r.header.Depth
	case threeD:
		c[2] = size(2)
	case cube, twoD, twoDNoMipmap:
		c[2] = 1
	case oneD, buffer:
		c[1], c[2] = 1, 1
	}
	return c, nil
}

// queriedLod returns the level of detail that follows from the derivatives, and the level that
// would be sampled: both in 1/256.
func (r *request) queriedLod(lane int) (c colour, err error) {
	if r.empty() {
		return c, nil
	}
	detail := r.differences(lane) + fixed(r.Bias) + fixed(r.header.Bias)
	c[0] = uint32(uint16(max(-1<<15, min(detail, 1<<15-1))))
	first, last := r.header.MinLevel, min(r.header.MaxLevel, r.header.LastLevel)
	top := int(max(first, last)-first) * one
	clamped := max(0, min(r.limit(r.differences(lane)), top))
	switch r.Mip {
	case mipPoint:
		clamped = (clamped + one/2 - 1) >> 8 << 8
	case mipLinear:
	default:
		clamped = 0
	}
	c[1] = uint32(clamped)
	return c, nil
}
