package engine

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine/methods"
)

// Method is a row of a class: a method or an array of methods.
type Method struct {
	methods.Row
	effect

	trigger int // place in triggers, if the effect counts
}

// effect is what a method does beyond storing its data.
type effect struct {
	act    action
	bulk   bulkAction             // in place of act
	hopper hopperAction           // in place of act, of a Hopper's graphics classes
	valid  func(data uint32) bool // values of enumerations; nil: all
	counts bool                   // it starts work that this card does not always execute, and then counts it
}

// action carries out a method of the graphics engine.
type action func(g *GR, env *Env, c call) Outcome

// bulkAction carries out a run of words for one method, as many as one call may, and reports the
// bytes it took.
type bulkAction func(g *GR, env *Env, c *Class, data []byte) (int, Outcome)

// call is a method that has been checked and stored.
type call struct {
	class  *Class
	row    *Method
	method uint32
	data   uint32
}

// methodSlots is the number of dwords that a 12-bit method address can name.
const methodSlots = 1 << 12

// Class is one object class that the card's engines implement, with its look-up table.
type Class struct {
	ID   uint16
	Kind Kind
	Name string // NVIDIA's

	place int // in Stats, and of a graphics class in GR
	rows  []Method
	slot  [methodSlots]uint16 // 1 + row
}

// lookup finds the row of a method, nil if the class does not declare it.
func (c *Class) lookup(method uint32) *Method {
	if method&3 != 0 || method/4 >= methodSlots || c.slot[method/4] == 0 {
		return nil
	}
	return &c.rows[c.slot[method/4]-1]
}

// check finds the row of a method and holds the data against it.
func (c *Class) check(method, data uint32) (*Method, Reason) {
	row := c.lookup(method)
	switch {
	case row == nil:
		return nil, NoMethod
	case data&^row.Mask != 0:
		return nil, BadBitfield
	case row.valid != nil && !row.valid(data):
		return nil, BadEnum
	}
	return row, 0
}

func (c *Class) named(name string) *Method {
	for i := range c.rows {
		if c.rows[i].Name == name {
			return &c.rows[i]
		}
	}
	return nil
}

// op is work of this class.
func (c *Class) op(kind OpKind) Op { return Op{Kind: kind, Class: c.ID, Stat: uint8(c.place)} }

// trigger names a method that may be counted instead of executed.
type trigger struct {
	class uint16
	name  string
}

// triggers is filled while the class tables are built, then only read.
var triggers []trigger

// add joins rows of a table to the class. It panics on rows that claim the same offset: the
// tables would be wrong.
func (c *Class) add(table string) {
	text, err := tables.ReadFile("classes/" + table + ".txt")
	if err != nil {
		panic(err)
	}
	rows, err := methods.Parse(string(text))
	if err != nil {
		panic(fmt.Sprintf("engine: classes/%s.txt: %v", table, err))
	}
	for _, r := range rows {
		c.rows = append(c.rows, Method{Row: r})
		for n := range r.Count {
			at := (r.Offset + n*r.Stride) / 4
			if k := c.slot[at]; k != 0 {
				panic(fmt.Sprintf("engine: class %04x: %s and %s both claim method %04x", c.ID, c.rows[k-1].Name, r.Name, at*4))
			}
			c.slot[at] = uint16(len(c.rows))
		}
	}
}

// bind gives methods their effects by name. It panics on an effect without a row.
func (c *Class) bind(effects map[string]effect) {
	for name := range effects {
		if c.named(name) == nil {
			panic(fmt.Sprintf("engine: class %04x has no method %s", c.ID, name))
		}
	}
	for i := range c.rows {
		r := &c.rows[i]
		e, ok := effects[r.Name]
		if !ok {
			continue
		}
		r.effect = e
		if e.counts {
			r.trigger = len(triggers)
			triggers = append(triggers, trigger{c.ID, r.Name})
		}
	}
	if len(triggers) > maxNotExecuted {
		panic("engine: more triggers than maxNotExecuted")
	}
}

// MethodName names a method, with its place in an array of methods; one that the class does not have by its offset.
func (c *Class) MethodName(method uint32) string {
	row := c.lookup(method)
	switch {
	case row == nil:
		return fmt.Sprintf("%04x", method)
	case row.Stride == 0:
		return row.Name
	}
	return fmt.Sprintf("%s(%d)", row.Name, (method-row.Offset)/row.Stride)
}

// Rows is how many methods and arrays of methods the class has.
func (c *Class) Rows() int { return len(c.rows) }

// RowName names one of them.
func (c *Class) RowName(i int) string { return c.rows[i].Name }
