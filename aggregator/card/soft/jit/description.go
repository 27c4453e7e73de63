package jit

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// A Description is what the process knows of a launch.
type Description struct {
	Region uint64        // of the code
	Launch interp.Launch // without Memory, Program and Units; Local is that of slot 0
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
	return to
}

// Decode reads a description.
func (d *Description) Decode(from []byte) error {
	if len(from) != descriptionBytes {
		return fmt.Errorf("a description of %d bytes: want %d", len(from), descriptionBytes)
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
	return nil
}
