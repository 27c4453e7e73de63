package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// Units are the texture and surface units for what a launch has bound. They belong to one goroutine.
type Units struct {
	texture.Unit
	surfaces *[sm.Surfaces]sm.Surface
}

// NewUnits makes units of an address space.
func NewUnits(m interp.Memory, t *sm.Textures, s *[sm.Surfaces]sm.Surface) *Units {
	return &Units{texture.Unit{Memory: m, Bound: t}, s}
}

// Values of isa.Dims. With layers, the third coordinate is a distance in bytes of layerUnit: what a
// program multiplies with the number of the layer comes from its driver (Mesa: the miptree's
// layer_stride >> 8). SET_SU_LD_ST_TARGET does not say how many layers a surface has, so nothing but the
// address space bounds the distance. A linear surface is a line of bytes, with one layer.
const (
	dims3D     = 2
	dimsLayers = 3
	layerUnit  = 256
)

// Surface implements interp.Units. Outside of a surface nothing is stored, and zeros are loaded.
func (u *Units) Surface(p *interp.Pixel) error {
	if p.Image >= uint32(len(u.surfaces)) {
		return fmt.Errorf("surface %d", p.Image)
	}
	s := &u.surfaces[p.Image]
	f := &colorFormats[s.Format]
	if s.Format == 0 { // none is bound
		p.Out = true
		return nil
	}
	if f.bytes == 0 || s.Zeta {
		return fmt.Errorf("surfaces of format %#x", s.Format)
	}
	width := uint64(s.Width)
	if !s.Linear {
		width *= uint64(f.bytes)
	}
	x, y, n := uint64(p.At[0]), uint64(p.At[1]), uint64(p.Inst.Bytes())
	if p.Inst.Op == isa.SurfStoreFormat {
		n = uint64(f.bytes)
		x *= n
	}
	if s.Linear {
		y = 0
	}
	at := Surface{VA: s.Address, Stride: width}
	layer := uint64(0)
	switch p.Inst.Mod[isa.Dims] {
	case dims3D:
		return fmt.Errorf("surfaces of three dimensions")
	case dimsLayers:
		layer = uint64(p.At[2]) * layerUnit
	}
	if !s.Linear {
		at = blockLinear(s.Address, width, uint64(s.Height), uint32(s.Log2Block[1]), 0, 0)
	}
	p.Out = x+n > width || y >= uint64(s.Height) || s.Linear && layer != 0
	if p.Out {
		p.Data = [4]uint32{}
		return nil
	}
	return u.access(p, f, at.at(x, y)&vaMask+layer, n)
}

// access carries out an instruction at an address. n is how many bytes are loaded or stored.
func (u *Units) access(p *interp.Pixel, f *colorFormat, va, n uint64) error {
	var b pixel
	switch p.Inst.Op {
	case isa.SurfLoad:
		if err := u.Memory.Load(va, b[:n]); err != nil {
			return err
		}
		for i := range p.Data {
			p.Data[i] = binary.LittleEndian.Uint32(b[i*4:])
		}
		switch p.Inst.Mod[isa.Width] {
		case isa.S8:
			p.Data[0] = uint32(int32(int8(p.Data[0])))
		case isa.S16:
			p.Data[0] = uint32(int32(int16(p.Data[0])))
		}
		return nil
	case isa.SurfStore:
		for i, w := range p.Data {
			binary.LittleEndian.PutUint32(b[i*4:], w)
		}
		return u.Memory.Store(va, b[:n])
	case isa.SurfStoreFormat:
		b, _ = f.pack(p.Data, 0xf)
		return u.Memory.Store(va, b[:n])
	case isa.SurfAddress:
		p.Data = [4]uint32{uint32(va), uint32(va >> 32)}
		return nil
	}
	return fmt.Errorf("reductions of surfaces")
}
