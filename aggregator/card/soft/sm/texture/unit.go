package texture

import (
	"fmt"

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
	case r.in.Op == isa.TexGrad && (r.dims() == 3 || r.isCube()):
		return fmt.Errorf("derivatives of three coordinates")
	case r.in.Op == isa.TexGather && r.dims() != 2:
		return fmt.Errorf("a gather from a texture of %d dimensions", r.dims())
	case r.in.Op == isa.TexFetch && r.isCube():
		return fmt.Errorf("a fetch from a cube")
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
