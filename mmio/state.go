package mmio

import "fmt"

// StateVersion is the version of State that this package writes and reads.
const StateVersion = 1

// State is the stored content of a Space where it differs from Reset: of
// registers and of holes, by dword. It holds no counters and no behaviour: the
// state behind effects and apertures belongs to their owners.
type State struct {
	Version int     `json:"version"`
	Size    uint32  `json:"size"`
	Values  []Value `json:"values"` // by rising offset
}

// Value is one dword.
type Value struct {
	// Name is the dword's register, the lowest if narrow ones share it, and empty for a
	// hole. SetState compares it with its own table.
	Name   string `json:"name,omitempty"`
	Offset uint32 `json:"offset"` // a multiple of 4
	Value  uint32 `json:"value"`
}

// State returns the stored values that differ from reset, between two accesses.
func (s *Space) State() State {
	st := State{Version: StateVersion, Size: s.size, Values: []Value{}}
	for i, v := range s.mem {
		off := uint32(i) * 4
		if p := s.pages[off>>pageShift]; v == 0 && p == nil {
			continue // most of the space
		}
		if v != s.resetAt(off) {
			st.Values = append(st.Values, Value{Name: s.dwordName(off), Offset: off, Value: v})
		}
	}
	return st
}

// SetState replaces the content of the space by st; no effects run. It refuses,
// before it changes anything, a state of another version or size, offsets that
// are not rising dwords of this space, and names that this space's table does
// not have there.
func (s *Space) SetState(st State) error {
	if st.Version != StateVersion {
		return fmt.Errorf("mmio: state has version %d; this program reads version %d", st.Version, StateVersion)
	}
	if st.Size != s.size {
		return fmt.Errorf("mmio: state is of a space of %#x bytes, this one has %#x", st.Size, s.size)
	}
	for i, v := range st.Values {
		if v.Offset >= s.size || v.Offset%4 != 0 {
			return fmt.Errorf("mmio: state of %q at %#06x: no dword of this space", v.Name, v.Offset)
		}
		if i > 0 && v.Offset <= st.Values[i-1].Offset {
			return fmt.Errorf("mmio: state of %q at %#06x follows %#06x; offsets must rise", v.Name, v.Offset, st.Values[i-1].Offset)
		}
		if id := s.find(v.Offset); s.rows[id].window != nil {
			return fmt.Errorf("mmio: state of %q at %#06x: aperture %s stores nothing", v.Name, v.Offset, s.rows[id].decl.Name)
		}
		if name := s.dwordName(v.Offset); name != v.Name {
			return fmt.Errorf("mmio: state of %q at %#06x, where this space has %q", v.Name, v.Offset, name)
		}
	}
	s.Reset()
	for _, v := range st.Values {
		s.put(v.Offset/4, v.Value)
	}
	return nil
}

func (s *Space) resetAt(off uint32) uint32 {
	var v uint32
	for id := s.find(off); id != 0; id = s.rows[id].next {
		v |= s.rows[id].decl.Reset << s.rows[id].shift
	}
	return v
}

// dwordName returns the first register of the dword at off, or nothing for a
// hole.
func (s *Space) dwordName(off uint32) string {
	id := s.find(off)
	if id == 0 {
		return ""
	}
	return s.nameAt(s.rows[id], off)
}
