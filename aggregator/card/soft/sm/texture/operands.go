package texture

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// request is an instruction, and what its operands are. A place is -1 if there is no such
// operand.
type request struct {
	*interp.Texels
	in *isa.Inst
	sampling

	coordinates            int // the first, in A
	count                  int
	array                  bool
	lod, offset, reference int // in B
	offsetInA              bool
}

// take finds the operands. A has the array's index or the handle, then the coordinates; B has what
// the modifiers ask for, in this order.
func (r *request) take() {
	m := &r.in.Mod
	target := m[isa.Target]
	r.array = target&1 != 0
	r.count = min(int(target>>1), 2) + 1
	if r.array || m[isa.Indirect] != 0 {
		r.coordinates = 1
	}
	r.lod, r.offset, r.reference = -1, -1, -1
	next := 0
	place := func(at *int, there bool) {
		if there {
			*at = next
			next++
		}
	}
	switch r.in.Op {
	case isa.Tex:
		place(&r.lod, m[isa.Lod] == lodBias || m[isa.Lod] == lodGiven)
		place(&r.offset, m[isa.Offsets] != 0)
		place(&r.reference, m[isa.Shadow] != 0)
	case isa.TexFetch:
		place(&r.lod, m[isa.Lod] == fetchLod)
		place(&r.offset, m[isa.Offsets] != 0)
	case isa.TexGather:
		place(&r.offset, m[isa.Offsets] != 0)
		if m[isa.Offsets] == gatherOffsets {
			next++
		}
		place(&r.reference, m[isa.Shadow] != 0)
	case isa.TexGrad:
		r.offsetInA = m[isa.Offsets] != 0
	}
}

// Values of modifiers.
const (
	lodAuto, lodZero, lodBias, lodGiven = 0, 1, 2, 3
	fetchLod                            = 1
	gatherOffsets                       = 2
)

// A handle is the first operand's: array index, sampler and texture.
const (
	handleArray   = 0xffff
	handleSampler = 16
	handleTexture = 23
)

func (r *request) handle(lane int) uint32 {
	if r.in.Mod[isa.Indirect] == 0 {
		return 0
	}
	return r.A[0][lane] &^ handleArray
}

// layer is the array's index, of the nearest layer that there is. The faces of a cube are layers.
func (r *request) layer(lane int) uint64 {
	if !r.array {
		return 0
	}
	faces := uint64(1)
	if r.isCube() {
		faces = 6
	}
	n := r.image.Layers / faces
	if n == 0 {
		return 0
	}
	return min(uint64(r.A[0][lane]&handleArray), n-1) * faces
}

// position finds where a lane samples.
func (r *request) position(lane int) (p position) {
	for i := range r.count {
		p.at[i] = float64(math.Float32frombits(r.A[r.coordinates+i][lane]))
	}
	p.layer = r.layer(lane)
	if r.isCube() {
		p.face, p.at[0], p.at[1] = face(p.at)
		p.at[2] = 0
	}
	if r.offset >= 0 {
		p.offset = offsets(r.B[r.offset][lane])
	}
	if r.offsetInA {
		p.offset = offsets(r.A[r.coordinates+r.count][lane])
	}
	if r.reference >= 0 {
		p.reference = math.Float32frombits(r.B[r.reference][lane])
	}
	return p
}

// offsets are three signed numbers of four bits.
func offsets(v uint32) (o [3]int) {
	for i := range o {
		o[i] = int(int32(v<<(28-4*i)) >> 28)
	}
	return o
}
