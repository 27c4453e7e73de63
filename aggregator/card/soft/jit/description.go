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

// words are the numbers of a description, in order.
func (d *Description) words(each func(v *uint64)) {
	l := &d.Launch
	each(&d.Region)
	each(&l.Local)
	for _, v := range []*uint32{
		&l.Entry, &l.Grid[0], &l.Grid[1], &l.Grid[2], &l.Block[0], &l.Block[1], &l.Block[2], &l.GridID,
		&l.Registers, &l.Barriers, &l.Shared, &l.LocalPos, &l.LocalNeg, &l.SharedWindow, &l.LocalWindow,
	} {
		w := uint64(*v)
		each(&w)
		*v = uint32(w)
	}
	for i := range l.Banks {
		b := &l.Banks[i]
		size := uint64(b.Size)
		if b.Valid {
			size |= 1 << 32
		}
		each(&b.Addr)
		each(&size)
		b.Size, b.Valid = uint32(size), size>>32 != 0
	}
}

// encode appends the description.
func (d *Description) encode(to []byte) []byte {
	d.words(func(v *uint64) { to = binary.LittleEndian.AppendUint64(to, *v) })
	return to
}

// Decode reads a description.
func (d *Description) Decode(from []byte) error {
	if want := len((&Description{}).encode(nil)); len(from) != want {
		return fmt.Errorf("a description of %d bytes: want %d", len(from), want)
	}
	d.words(func(v *uint64) { *v, from = binary.LittleEndian.Uint64(from), from[8:] })
	return nil
}
