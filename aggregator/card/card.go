// Package card says what a card is to those who drive one: registers and
// windows behind BARs, a configuration space, DMA into somebody's memory,
// interrupts, reset.
//
// The package holds interfaces, and what every card does about a fault of the bus.
// It has no state, locks or goroutines.
package card

import "os"

// Bus is the memory that a card reaches by DMA, addressed as the card addresses
// it (bus addresses).
//
// Acquire pins the memory until Release: no range goes away in between. It is
// held for one bounded step, never while waiting for anything, and not taken
// twice by one goroutine.
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
	// MSI says that the driver wants messages: one for each edge. Otherwise the
	// pin follows the level, unless Disabled.
	MSI      bool
	Disabled bool
}

// Host is what a card is plugged into.
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

// Card is what an aggregator drives: registers and windows, memory, a place to
// plug in a host, reset. It is small so that a real card fits behind it. All
// methods may be called from any goroutine.
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

	// Still runs do while the channels, by the card's numbers, stand between two
	// steps: nothing of theirs reads or writes memory meanwhile. It waits for the
	// steps under way, which are bounded, and keeps nobody else from running.
	Still(channels []uint8, do func())
	// Home gives pages of VRAM another home, from the first on, and returns how many
	// bytes of them have moved. Channels that use the pages have been made to stand
	// still, and nobody else uses them. From then on the card, its engines and
	// ReadVRAM, WriteVRAM and ScrubVRAM find the pages there.
	//
	// A card with memory of its own behind BARs that a guest's machine can map does not
	// move bytes: it makes the entries of its own BAR tables that stand behind To point
	// to the pages.
	Home(Move) (done uint64, err error)

	AttachHost(Host)
	DetachHost()
	Reset() error
}

// Move says where pages of VRAM shall have their bytes.
type Move struct {
	Addr, Size uint64   // whole pages of 4 KiB
	To         *os.File // shared memory, nil for the card's own
	Off        uint64   // of the first page in To
	// Adopt says that To has the bytes already.
	Adopt bool
	// Stay leaves where the pages were as it is. It is cleared otherwise.
	Stay bool
	// Kept, if not nil, is as long as the pages, and gets their bytes as they were
	// taken.
	Kept []byte
}

// Pieces is what a card may have whose memory cannot lie in any number of pieces: how many
// there may be, of pages that are together in one place (see Home).
type Pieces interface{ Pieces() int }
