package jit

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// A Description is what the process knows of a launch.
type Description struct {
	Region uint64        // of the code
	Launch interp.Launch // without Memory, Program and Units; Local is that of slot 0
	Bound  Bound
}

// Bound are the textures and surfaces that programs can name.
type Bound struct {
	Textures sm.Textures
	Surfaces [sm.Surfaces]sm.Surface
}

// any reports whether programs can name one. Most launches have none, and their description ends before.
func (b *Bound) any() bool {
	return slices.ContainsFunc(b.Textures.HeaderSlots[:], func(s sm.Slot) bool { return s.Bound }) ||
		slices.ContainsFunc(b.Surfaces[:], func(s sm.Surface) bool { return s.Format != 0 })
}

// sizes are the numbers of 32 bits in a description.
func (d *Description) sizes() [15]*uint32 {
	l := &d.Launch
	return [...]*uint32{
		&l.Entry, &l.Grid[0], &l.Grid[1], &l.Grid[2], &l.Block[0], &l.Block[1], &l.Block[2], &l.GridID,
		&l.Registers, &l.Barriers, &l.Shared, &l.LocalPos, &l.LocalNeg, &l.SharedWindow, &l.LocalWindow,
	}
}

const (
	bankBytes        = 8 + 4 + 1
	descriptionBytes = 2*8 + 15*4 + 32*bankBytes
)

// encode appends the description.
func (d *Description) encode(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(to, d.Region)
	to = binary.LittleEndian.AppendUint64(to, d.Launch.Local)
	for _, v := range d.sizes() {
		to = binary.LittleEndian.AppendUint32(to, *v)
	}
	for i := range d.Launch.Banks {
		b := &d.Launch.Banks[i]
		valid := byte(0)
		if b.Valid {
			valid = 1
		}
		to = append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(to, b.Addr), b.Size), valid)
	}
	if d.Bound.any() {
		to, _ = binary.Append(to, binary.LittleEndian, &d.Bound) // fails for types without a size only
	}
	return to
}

// Decode reads a description.
func (d *Description) Decode(from []byte) error {
	if n := descriptionBytes + binary.Size(d.Bound); len(from) != descriptionBytes && len(from) != n {
		return fmt.Errorf("a description of %d bytes: want %d or %d", len(from), descriptionBytes, n)
	}
	d.Region, d.Launch.Local = binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
	from = from[16:]
	for _, v := range d.sizes() {
		*v, from = binary.LittleEndian.Uint32(from), from[4:]
	}
	for i := range d.Launch.Banks {
		d.Launch.Banks[i] = interp.Bank{Addr: binary.LittleEndian.Uint64(from), Size: binary.LittleEndian.Uint32(from[8:]), Valid: from[12] != 0}
		from = from[bankBytes:]
	}
	if d.Bound = (Bound{}); len(from) == 0 {
		return nil
	}
	_, err := binary.Decode(from, binary.LittleEndian, &d.Bound)
	return err
}
