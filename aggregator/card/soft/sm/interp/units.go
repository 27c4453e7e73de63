package interp

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Units are the texture and surface units of the card. They know formats and layouts, which the
// executor does not. Of an error that is a *Fault, the unit sets Cause, What and Addr.
type Units interface {
	// Texture executes a texture instruction in some lanes: derivatives need their neighbours.
	Texture(t *Texels) error
	// Surface executes a surface instruction in one lane.
	Surface(s *Pixel) error
}

// Texels are what a texture instruction takes and gives, by register and lane.
type Texels struct {
	Inst  *isa.Inst
	Lanes uint32
	A     [5][Lanes]uint32 // the first operand
	B     [4][Lanes]uint32 // the second
	Out   [4][Lanes]uint32 // components, whether or not the instruction wants them
}

// A Pixel is what a surface instruction takes and gives in one lane.
type Pixel struct {
	Inst  *isa.Inst
	Image uint32 // number of the image
	At    [4]uint32
	Data  [4]uint32 // to store, or loaded
	Out   bool      // the predicate result: outside of the image
}

func init() {
	for _, op := range []isa.Op{isa.Tex, isa.TexFetch, isa.TexGather, isa.TexLod, isa.TexQuery, isa.TexGrad} {
		warpOps[op] = (*exec).texture
	}
	for _, op := range []isa.Op{isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfAddress, isa.SurfRed} {
		laneOps[op] = (*exec).surface
	}
}

func (x *exec) unit() Units {
	if x.b.Launch.Units == nil {
		x.fail(NotImplemented, -1, 0, "texture and surface units")
	}
	return x.b.Launch.Units
}

// failed turns the error of a unit into a fault.
func (x *exec) failed(lane int, err error) {
	if f, ok := err.(*Fault); ok {
		x.fail(f.Cause, lane, f.Addr, f.What)
	} else if err != nil {
		x.refused(NotImplemented, lane, 0, err.Error(), err)
	}
}

func (x *exec) texture() {
	u := x.unit()
	if u == nil {
		return
	}
	t := &x.b.texels
	*t = Texels{Inst: &x.in.Inst, Lanes: x.lanes}
	for src, to := range [...][][Lanes]uint32{t.A[:], t.B[:]} {
		if v := &x.in.Src[src]; v.Kind == isa.Reg && v.Reg != isa.Zero {
			for i := range v.Count {
				to[i] = x.w.Regs[v.Reg+i]
			}
		}
	}
	x.failed(-1, u.Texture(t))
	for lane := range x.each {
		components(&x.in.Dst, func(i int) { x.setReg(component(&x.in.Dst, i), lane, t.Out[i][lane]) })
	}
}

// components calls f for each component that a mask has a register for.
func components(v *isa.Operand, f func(i int)) {
	for i := range 4 {
		if v.Mask>>i&1 != 0 && v.Reg != isa.Zero {
			f(i)
		}
	}
}

// component returns the register of a masked component: those without one take no place.
func component(v *isa.Operand, i int) uint8 {
	return v.Reg + uint8(bits.OnesCount8(v.Mask&(1<<i-1)))
}

func (x *exec) surface(lane int) {
	u := x.unit()
	if u == nil {
		return
	}
	image := &x.in.Src[2]
	p := &x.b.pixel
	*p = Pixel{Inst: &x.in.Inst, Image: uint32(image.Value)}
	if image.Kind == isa.Surface && image.Count == 1 {
		p.Image = x.w.Regs[image.Reg][lane]
	}
	at, from := &x.in.Src[0], &x.in.Src[1]
	for i := range at.Count {
		p.At[i] = x.w.Regs[min(at.Reg+i, isa.Zero)][lane]
	}
	switch {
	case from.Mask != 0:
		components(from, func(i int) { p.Data[i] = x.w.Regs[component(from, i)][lane] })
	case from.Kind == isa.Reg && from.Reg != isa.Zero:
		for i := range from.Count {
			p.Data[i] = x.w.Regs[from.Reg+i][lane]
		}
	}
	x.failed(lane, u.Surface(p))
	for i := range x.in.Dst.Count {
		if x.in.Dst.Reg != isa.Zero {
			x.setReg(x.in.Dst.Reg+i, lane, p.Data[i])
		}
	}
	x.setPred(0, lane, p.Out)
}
