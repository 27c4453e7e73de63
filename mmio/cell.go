package mmio

import "fmt"

// Cell is a register instance as its owner sees it: plain storage, without
// access modes, effects or counts.
type Cell struct {
	s     *Space
	dword uint32
	lanes uint32
	shift uint8
}

// Cell returns instance i of the named row. The name comes from code, not from
// a guest, so a wrong one is a bug and panics.
func (s *Space) Cell(name string, i int) Cell {
	id, ok := s.byName[name]
	if !ok {
		panic(fmt.Sprintf("mmio: no register named %s", name))
	}
	r := s.rows[id]
	if r.window != nil {
		panic(fmt.Sprintf("mmio: %s is an aperture and stores nothing", name))
	}
	if i < 0 || i >= r.decl.instances() {
		panic(fmt.Sprintf("mmio: %s has %d instances, not one numbered %d", name, r.decl.instances(), i))
	}
	return Cell{s: s, dword: r.decl.InstanceOffset(i) / 4, lanes: r.lanes, shift: r.shift}
}

// Get returns the stored value.
func (c Cell) Get() uint32 { return c.s.mem[c.dword] & c.lanes >> c.shift }

// Put stores v.
func (c Cell) Put(v uint32) {
	c.s.mem[c.dword] = c.s.mem[c.dword]&^c.lanes | v<<c.shift&c.lanes
}

// Set sets the bits of mask.
func (c Cell) Set(mask uint32) { c.Put(c.Get() | mask) }

// Clear clears the bits of mask.
func (c Cell) Clear(mask uint32) { c.Put(c.Get() &^ mask) }
