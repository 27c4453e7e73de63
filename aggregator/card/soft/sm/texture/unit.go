package texture

import (
	"fmt"
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Unit executes texture instructions with what is bound.
type Unit struct {
	Memory interp.Memory
	Bound  *sm.Textures

	// What an instruction works with. It is here so that instructions allocate nothing.
	request request
	bytes   [sm.DescriptorSize]byte
}

// Texture executes an instruction in the lanes of a warp. If it fails, the results say nothing.
func (u *Unit) Texture(t *interp.Texels) error {
	r := &u.request
	*r = request{Texels: t, in: t.Inst}
	r.take()
	op, last := operations[r.in.Op], ^uint32(0)
	for lane := range interp.Lanes {
		if t.Lanes>>lane&1 == 0 {
			continue
		}
		// Lanes mostly name the same descriptors.
		if handle := r.handle(lane); handle != last {
			if err := u.describe(r, lane); err != nil {
				return err
			}
			last = handle
		}
		c, err := op(r, lane)
		if err != nil {
			return err
		}
		for i := range c {
			t.Out[i][lane] = c[i]
		}
	}
	return nil
}

// operations execute an instruction in a lane.
var operations = map[isa.Op]func(r *request, lane int) (colour, error){
	isa.Tex: (*request).sampled, isa.TexGrad: (*request).sampled, isa.TexFetch: (*request).fetched,
	isa.TexGather: (*request).gathered, isa.TexLod: (*request).queriedLod, isa.TexQuery: (*request).queried,
}

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

// describe reads the descriptors that a lane names.
func (u *Unit) describe(r *request, lane int) error {
	texture, sampler := uint32(r.in.Src[2].Value), uint32(r.in.Src[3].Value)
	if r.in.Mod[isa.Indirect] != 0 {
		h := r.A[0][lane]
		texture, sampler = h>>handleTexture, h>>handleSampler&0x7f
	}
	w, err := u.descriptor("texture", &u.Bound.Headers, &u.Bound.HeaderSlots, texture)
	if err != nil {
		return err
	}
	s := &r.sampling
	*s = sampling{memory: u.Memory, seamless: u.Bound.Seamless, compare: r.reference >= 0}
	if err = decode(headerFields, &w, &s.header); err != nil {
		return err
	}
	if s.format, err = s.header.format(); err != nil {
		return err
	}
	if s.image, err = s.header.image(s.format); err != nil {
		return err
	}
	if op := r.in.Op; op == isa.TexFetch || op == isa.TexQuery { // no sampler
		return r.check()
	}
	if u.Bound.Linked {
		sampler = u.Bound.HeaderSlots[texture].Index
		w, err = u.entry("sampler", &u.Bound.Samplers, sampler)
	} else {
		w, err = u.descriptor("sampler", &u.Bound.Samplers, &u.Bound.SamplerSlots, sampler)
	}
	if err != nil {
		return err
	}
	if err = decode(samplerFields, &w, &s.Sampler); err != nil {
		return err
	}
	s.setBorder()
	return r.check()
}

// descriptor reads the descriptor in a slot.
func (u *Unit) descriptor(what string, p *sm.Pool, slots *[sm.TextureSlots]sm.Slot, slot uint32) (w Words, err error) {
	if slot >= sm.TextureSlots || !slots[slot].Bound {
		return w, fmt.Errorf("%s %d, which is not bound", what, slot)
	}
	return u.entry(what, p, slots[slot].Index)
}

func (u *Unit) entry(what string, p *sm.Pool, index uint32) (w Words, err error) {
	if index > p.Last {
		return w, fmt.Errorf("%s descriptor %d: the last is %d", what, index, p.Last)
	}
	if err := u.Memory.Load((p.Address+uint64(index)*sm.DescriptorSize)&addressMask, u.bytes[:]); err != nil {
		return w, err
	}
	return wordsOf(u.bytes[:]), nil
}

// targets are the dimensions that an instruction may name for a type of texture: as
// isa.Target counts them.
var targets = map[uint32]uint8{
	oneD: 0, buffer: 0, oneDArray: 1, twoD: 2, twoDNoMipmap: 2, twoDArray: 3, threeD: 4, cube: 6, cubeArray: 7,
}

// check names what an instruction asks for that is not implemented.
func (r *request) check() error {
	m := &r.in.Mod
	switch {
	case r.in.Op != isa.TexQuery && targets[r.header.Target] != m[isa.Target]:
		return fmt.Errorf("an instruction for target %d on a texture of type %d", m[isa.Target], r.header.Target)
	case r.in.Op == isa.Tex && m[isa.Lod] > lodGiven:
		return fmt.Errorf("level of detail %d", m[isa.Lod])
	case m[isa.Samples] != 0:
		return fmt.Errorf("multisampled textures")
	case m[isa.Clamp] != 0:
		return fmt.Errorf("clamped levels of detail")
	case r.Anisotropy != 0 && r.Min == filterLinear && r.in.Op != isa.TexGather && r.in.Op != isa.TexLod && r.varies():
		return fmt.Errorf("anisotropic filters")
	case r.compare && r.Compare == 0:
		return fmt.Errorf("a comparison without one in the sampler")
	}
	return nil
}

// varies reports whether an instruction has derivatives.
func (r *request) varies() bool {
	return r.in.Op == isa.TexGrad || r.in.Op == isa.Tex && r.in.Mod[isa.Lod] != lodZero && r.in.Mod[isa.Lod] != lodGiven
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
	if r.empty() || r.dims() != 2 {
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
