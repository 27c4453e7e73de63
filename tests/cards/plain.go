package cards

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Plain shows the registers and the memory of a card, and hides all that is optional. Its
// memory is accessed in small pieces.
type Plain struct{ card.Registers }

// pieceSize is the most bytes of one access.
const pieceSize = 256

// pieces calls do for each piece of p, until one fails.
func (c Plain) pieces(addr uint64, p []byte, do func(addr uint64, p []byte) bool) bool {
	if size := c.VRAMSize(); addr > size || uint64(len(p)) > size-addr {
		return false
	}
	for len(p) > 0 {
		n := min(len(p), int(pieceSize-addr%pieceSize))
		if !do(addr, p[:n]) {
			return false
		}
		addr, p = addr+uint64(n), p[n:]
	}
	return true
}

// ReadVRAM implements card.Memory.
func (c Plain) ReadVRAM(addr uint64, p []byte) bool { return c.pieces(addr, p, c.Registers.ReadVRAM) }

// WriteVRAM implements card.Memory.
func (c Plain) WriteVRAM(addr uint64, p []byte) bool {
	return c.pieces(addr, p, c.Registers.WriteVRAM)
}

// SameVRAM implements card.Memory.
func (c Plain) SameVRAM(addr uint64, p []byte) bool {
	var b [pieceSize]byte
	return c.pieces(addr, p, func(addr uint64, p []byte) bool {
		return c.Registers.ReadVRAM(addr, b[:len(p)]) && bytes.Equal(b[:len(p)], p)
	})
}

// ScrubVRAM implements card.Memory.
func (c Plain) ScrubVRAM(addr, n uint64) error {
	if !c.WriteVRAM(addr, make([]byte, n)) {
		return fmt.Errorf("cards: no memory at %#x+%#x", addr, n)
	}
	return nil
}
