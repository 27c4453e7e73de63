package engine

// Values of Remap.Lanes besides source bytes 0 to 15.
const (
	laneConst0 = 0x10 // to 0x13: bytes of the first constant
	laneConst1 = 0x14 // to 0x17: bytes of the second
	laneZero   = 0x80
	laneKeep   = 0x81 // the destination's own byte stays
)

// Remap makes a copy engine rearrange elements: each byte of a destination
// element is a byte of the source element, of a constant, or zero.
type Remap struct {
	On             bool
	Reads          bool // some lane is a source byte; else the source is not read
	Keeps          bool // some lane is laneKeep
	SrcCPP, DstCPP uint8
	Lanes          [16]uint8
	Consts         [8]uint8
}

// apply builds one destination element.
func (r *Remap) apply(dst, src *[16]byte) {
	for i := range dst {
		switch lane := r.Lanes[i]; {
		case lane < r.SrcCPP:
			dst[i] = src[lane]
		case lane >= laneConst0 && lane < laneConst0+uint8(len(r.Consts)):
			dst[i] = r.Consts[lane-laneConst0]
		case lane == laneKeep:
		default: // zero, or a source byte beyond the element
			dst[i] = 0
		}
	}
}

// keep marks the components whose selector in a FORMAT says that they are not written.
func (r *Remap) keep(format uint32) {
	const notWritten = 6
	size := uint8(format>>16&3) + 1
	for i := range r.DstCPP {
		if format>>(4*(i/size))&7 == notWritten {
			r.Lanes[i], r.Keeps = laneKeep, true
		}
	}
}

// remap copies element by element.
func (c *Copy) remap(env *Env) (moved uint64, fault *Fault) {
	src := side{Surface: &c.Src}
	dst := side{Surface: &c.Dst, write: true}
	var in, out [16]byte
	for left := int64(env.budget()); left > 0 && c.Row < c.Lines && !env.Over(); left -= lineCost / 4 {
		env.Charge(lineCost / 4)
		if c.Remap.Reads {
			if fault := src.read(env, in[:c.Remap.SrcCPP], c.X*uint64(c.Remap.SrcCPP), c.Row); fault != nil {
				return moved, fault
			}
		}
		if c.Remap.Keeps {
			if fault := dst.read(env, out[:c.Remap.DstCPP], c.X*uint64(c.Remap.DstCPP), c.Row); fault != nil {
				return moved, fault
			}
		}
		c.Remap.apply(&out, &in)
		if fault := dst.store(env, out[:c.Remap.DstCPP], c.X*uint64(c.Remap.DstCPP), c.Row); fault != nil {
			return moved, fault
		}
		moved += uint64(c.Remap.DstCPP)
		if c.X++; c.X == c.Length {
			c.X, c.Row = 0, c.Row+1
		}
	}
	return moved, nil
}

// read fills p from byte x of line y on.
func (s *side) read(env *Env, p []byte, x, y uint64) *Fault {
	for len(p) > 0 {
		mem, fault := s.get(env, x, y)
		if fault != nil {
			return fault
		}
		n := copy(p[:s.run(x, uint64(len(p)))], mem)
		p, x = p[n:], x+uint64(n)
	}
	return nil
}

// store writes p from byte x of line y on.
func (s *side) store(env *Env, p []byte, x, y uint64) *Fault {
	for len(p) > 0 {
		mem, fault := s.get(env, x, y)
		if fault != nil {
			return fault
		}
		n := copy(mem, p[:s.run(x, uint64(len(p)))])
		p, x = p[n:], x+uint64(n)
	}
	return nil
}
