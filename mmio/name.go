package mmio

import "fmt"

// nameReach is how far from an undeclared offset a name still explains it.
const nameReach = 0x1000

// NameOf returns the name of the register or aperture that covers the byte at
// off. For a hole it is the nearest declared name below and the distance, as
// NV_X+0x14, or, with none near enough below, the nearest above, as NV_X-0x14.
func (s *Space) NameOf(off uint32) string {
	if off >= s.size {
		return fmt.Sprintf("outside+%#x", off-s.size)
	}
	for at := off &^ 3; ; at -= 4 {
		if name, ok := s.nameBelow(at, off); ok {
			return name
		}
		if at == 0 || off-at >= nameReach {
			break
		}
	}
	for at := off &^ 3; at < s.size && at-off&^3 <= nameReach; at += 4 {
		if id := s.find(at); id != 0 {
			first := s.startOf(s.rows[id], at)
			return fmt.Sprintf("%s-%#x", s.nameAt(s.rows[id], at), first-off)
		}
	}
	return fmt.Sprintf("hole %#06x", off)
}

// nameBelow names off after the highest row of the dword at that starts at or
// below it.
func (s *Space) nameBelow(at, off uint32) (string, bool) {
	var best *row
	for id := s.find(at); id != 0; id = s.rows[id].next {
		if r := s.rows[id]; s.startOf(r, at) <= off {
			best = r
		}
	}
	if best == nil {
		return "", false
	}
	if best.window != nil {
		return fmt.Sprintf("%s+%#x", best.decl.Name, off-best.windowBase), true
	}
	name := s.nameAt(best, at)
	if d := off - s.startOf(best, at); d >= best.width() {
		return fmt.Sprintf("%s+%#x", name, d), true
	}
	return name, true
}

func (s *Space) startOf(r *row, at uint32) uint32 {
	if r.window != nil {
		return r.windowBase
	}
	return at + uint32(r.shift)/8
}

func (s *Space) nameAt(r *row, at uint32) string {
	return r.decl.InstanceName(r.rep.instance(at))
}

func (r *row) width() uint32 {
	if r.decl.Width == 0 {
		return 4
	}
	return uint32(r.decl.Width)
}

// Rows returns every declared row, in order, for a listing of the chip.
func (s *Space) Rows() []Row {
	out := make([]Row, 0, len(s.rows)-1)
	for _, r := range s.rows[1:] {
		out = append(out, Row{
			Block: s.blocks[r.block], Reg: r.decl, Instances: r.decl.instances(), Aperture: r.windowSize,
		})
	}
	return out
}

// Row is one declared row of a space.
type Row struct {
	Block     string
	Reg       Reg
	Instances int
	Aperture  uint32 // size in bytes if the row is an aperture, else 0
}
