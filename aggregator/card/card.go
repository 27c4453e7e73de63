// Package card says what a card is, at two levels. A [GPU] has memory, address spaces and
// channels; the aggregator drives it. A card with [Registers] becomes a GPU by package
// driver.
//
// The package holds interfaces, and what every card does about DMA and its faults.
// It has no locks or goroutines.
package card

import (
	"os"

	"github.com/umbra-gpu/umbra/mmio"
)

// Line is the state of a card's interrupt.
type Line = mmio.Line

// Host is the machine that a card is attached to.
type Host interface {
	// Interrupt reports a change of the line. It must not block and must not
	// call back into the card.
	Interrupt(Line)
}

// BARs, as ReadBAR and WriteBAR count them.
const (
	BAR0 = 0 // registers
	BAR1 = 1 // VRAM through page tables, with the doorbells
	BAR3 = 3 // instance memory through page tables
)

// Relocation says where pages of VRAM shall have their bytes.
type Relocation struct {
	Addr, Size uint64   // whole pages of 4 KiB
	To         *os.File // shared memory, nil for the card's own
	Off        uint64   // of the first page in To
	// NoCopy says that To has the bytes already, and that the bytes where the pages were are
	// the caller's. Otherwise the bytes are copied, and cleared where they were.
	NoCopy bool
}
