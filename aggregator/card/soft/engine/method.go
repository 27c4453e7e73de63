package engine

import "fmt"

// Access is the effect of a write of a method beyond storing its data.
type Access uint8

const (
	Stored  Access = iota // nothing
	Acts                  // changes memory, a counter or other state
	Trigger               // starts a copy or an upload
	NotRun                // would start work that this card does not execute: stored and counted
)

// Method is one row of a class: a method or an array of methods.
type Method struct {
	Offset uint32 // of the first element, in bytes
	Stride uint32 // distance of two elements, 0 if there is one
	Count  uint32
	Name   string // NVIDIA's, without the class prefix
	Mask   uint32 // the bits that are declared
	Access Access

	valid   func(data uint32) bool // values of enumerations; nil: all
	act     effect
	bulk    bulkEffect
	trigger int // index in triggers, for NotRun
}

// effect carries out a method of the graphics engine.
type effect func(g *GR, env *Env, c call) Outcome

// bulkEffect carries out a run of words for one method, as many as one call
// may, and reports the bytes it took.
type bulkEffect func(g *GR, env *Env, c *class, data []byte) (int, Outcome)

// call is a method that has been checked and stored.
type call struct {
	class  *class
	row    *Method
	method uint32
	data   uint32
}

// methodSlots is the number of dwords that a 12-bit method address can name.
const methodSlots = 1 << 12

// class is a class with its look-up table.
type class struct {
	ID    uint16
	index int // in GR.Values
	stat  int // in Stats.class
	rows  []Method
	slot  [methodSlots]uint16 // 1 + row
}

// lookup finds the row of a method, nil if the class does not declare it.
func (c *class) lookup(method uint32) *Method {
	if method&3 != 0 || method/4 >= methodSlots || c.slot[method/4] == 0 {
		return nil
	}
	return &c.rows[c.slot[method/4]-1]
}

// effectRow binds behaviour to a method by name.
type effectRow struct {
	name   string
	access Access
	act    effect
	valid  func(data uint32) bool
	bulk   bulkEffect
}

// trigger names a method that is counted instead of executed.
type trigger struct {
	class uint16
	name  string
}

// triggers is filled while the class tables are built, then only read.
var triggers []trigger

// newClass joins rows and effects. It panics on rows that claim the same
// offset and on an effect without a row: the tables would be wrong.
func newClass(id uint16, index, stat int, rows []Method, effects []effectRow) *class {
	c := &class{ID: id, index: index, stat: stat, rows: append([]Method(nil), rows...)}
	for i := range c.rows {
		r := &c.rows[i]
		for n := range r.Count {
			at := (r.Offset + n*r.Stride) / 4
			if k := c.slot[at]; k != 0 {
				panic(fmt.Sprintf("engine: class %04x: %s and %s both claim method %04x", id, c.rows[k-1].Name, r.Name, at*4))
			}
			c.slot[at] = uint16(i + 1)
		}
	}
	for _, e := range effects {
		r := c.named(e.name)
		if r == nil {
			panic(fmt.Sprintf("engine: class %04x has no method %s", id, e.name))
		}
		r.Access, r.act, r.valid, r.bulk = e.access, e.act, e.valid, e.bulk
		if e.access == NotRun {
			r.trigger = len(triggers)
			triggers = append(triggers, trigger{id, e.name})
		}
	}
	if len(triggers) > maxNotExecuted {
		panic("engine: more triggers than maxNotExecuted")
	}
	return c
}

func (c *class) named(name string) *Method {
	for i := range c.rows {
		if c.rows[i].Name == name {
			return &c.rows[i]
		}
	}
	return nil
}
