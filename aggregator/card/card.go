// Package card has the interfaces of a card: registers and windows behind BARs, a
// configuration space, DMA into a host's memory, interrupts, reset.
//
// It also has the common handling of bus faults. It has no state, locks or goroutines.
package card

import "os"

// Bus is the memory that a card reaches by DMA, addressed as the card addresses
// it (bus addresses).
//
// Acquire pins the memory until Release: no range is unmapped in between. A caller holds it
// for one bounded step, never while it waits, and does not take it twice.
type Bus interface {
	Acquire()
	Release()
	// Slice returns the n bytes at addr, or nil unless all of them lie in one
	// mapping that permits the access. The slice is valid until Release.
	Slice(addr uint64, n int, write bool) []byte
}

// Line is the state of a card's interrupt.
type Line struct {
	Level bool // something is pending and enabled
	Edge  bool // the level rose, or a message has to be sent again
	// MSI means that the driver uses messages: one for each edge. Otherwise the pin follows
	// the level, unless Disabled.
	MSI      bool
	Disabled bool
}

// Host is the machine that a card is attached to.
type Host interface {
	Bus
	// Interrupt reports a change of the line. It must not block and must not
	// call back into the card.
	Interrupt(Line)
}

// BARs of a GF100, as ReadBAR and WriteBAR count them.
const (
	BAR0 = 0 // registers
	BAR1 = 1 // VRAM through page tables, with the doorbells
	BAR3 = 3 // instance memory through page tables
)

// Card is a card for an aggregator: registers and windows, memory, a host to attach, reset.
// It is small so that a real card can implement it. All methods may be called from any
// goroutine.
type Card interface {
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
	BARSize(bar int) uint64

	// VRAM in bytes, and access to it past every window. Accesses that do not
	// fit return false and do nothing.
	VRAMSize() uint64
	ReadVRAM(addr uint64, p []byte) bool
	WriteVRAM(addr uint64, p []byte) bool
	// SameVRAM reports whether the bytes at addr are p, without a copy.
	SameVRAM(addr uint64, p []byte) bool
	// ScrubVRAM makes n bytes at addr zero; both are multiples of 4 KiB.
	ScrubVRAM(addr, n uint64) error

	// Quiesce runs do while the given channels of the card are between two steps, so that
	// they access no memory. It waits for their steps under way, which are bounded. Other
	// channels continue.
	Quiesce(channels []uint8, do func())
	// Relocate changes the backing of pages of VRAM, from the first page on, and returns
	// how many bytes it moved. Channels that use the pages must be quiesced, and no other
	// code may use the pages. Afterwards the card, its engines and ReadVRAM, WriteVRAM and
	// ScrubVRAM use the new backing.
	//
	// A card that has BARs over its own memory does not move bytes: it points the entries
	// of its own BAR tables at the pages.
	Relocate(Relocation) (done uint64, err error)

	AttachHost(Host)
	DetachHost()
	Reset() error
}

// Relocation is a new backing for pages of VRAM.
type Relocation struct {
	Addr, Size uint64   // whole pages of 4 KiB
	To         *os.File // shared memory, nil for the card's own
	Off        uint64   // of the first page in To
	// NoCopy means that To has the bytes already, and that the caller handles the old ones.
	// Otherwise the bytes are copied, and the old ones cleared.
	NoCopy bool
}

// Mapper is implemented by a card whose memory can be in a limited number of pieces: each piece of
// adjacent pages (see Relocate) takes a mapping of the process.
type Mapper interface{ MaxMappings() int }
