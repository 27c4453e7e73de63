package mmio

import "fmt"

// nameReach is how far below an undeclared offset a name still explains it.
const nameReach = 0x1000

// NameOf returns the name of the register or aperture at off; for a hole, the
// nearest declared name below and the distance, as NV_X+0x14.
func (s *Space) NameOf(off uint32) string {
	if off >= s.size {
		return fmt.Sprintf("outside+%#x", off-s.size)
	}
	for at := off &^ 3; ; at -= 4 {
		if id := s.find(at); id != 0 {
			return s.rows[id].nameAt(at, off)
		}
		if at == 0 || off-at >= nameReach {
			return fmt.Sprintf("hole %#06x", off)
		}
	}
}

func (r *row) nameAt(at, off uint32) string {
	if r.window != nil {
		return fmt.Sprintf("%s+%#x", r.decl.Name, off-r.windowBase)
	}
	name := r.decl.InstanceName(r.decl.instance(at))
	if d := off - at; d >= 4 {
		return fmt.Sprintf("%s+%#x", name, d)
	}
	return name
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
