package hostile

import (
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guest"
)

// Kind is the kind of an action.
type Kind int

const (
	Access    Kind = iota // any bytes of any region, read or written
	Register              // a register that names something, with a value that means something
	Window                // PRAMIN over any place
	Entry                 // any page entry, then engines use it
	BigEntry              // any entry of a big page, which need not begin at a multiple of its size
	Dir                   // any directory entry, then engines use it
	Block                 // an instance block of any words, bound to any channel
	Ring                  // any GPFIFO entry, any GP_PUT
	Push                  // any words of a pushbuffer
	Engine                // copies and semaphores at any address
	List                  // any runlist, from anywhere
	Tables                // tables in RAM change while engines walk them
	Unmap                 // DMA mappings are removed and restored, and others appear, while engines copy
	Elsewhere             // RAM appears at any bus address, and engines use it there
	Restart               // a reset, and the driver begins again
)

var kindNames = [...]string{
	"access", "register", "window", "entry", "big entry", "directory", "block", "ring", "push", "engine", "runlist", "tables", "unmap", "elsewhere", "restart",
}

func (k Kind) String() string { return kindNames[k] }

// Base is where a place is counted from.
type Base int

const (
	Zero    Base = iota
	VRAMEnd      // the guest's own, where the next guest's may begin
	RAMBase      // on the bus
	RAMEnd
	Mine   // the attacker's own buffer in VRAM
	Mapped // a VA that the attacker has mapped
	TopVA  // the end of 40 bits
	Hole   // RAM that is not mapped, between RAM that is
	Guests // multiples of the guest's VRAM: where others' would lie, side by side
	baseCount
)

// Value is a number that may mean an address: (base + Off) >> Shift | Or.
type Value struct {
	Base  Base
	Off   int64
	Shift uint8
	Or    uint64
}

// Action is one deed. Which fields count depends on its kind.
type Action struct {
	Kind   Kind
	Region int
	Reg    uint32
	Off    uint64
	Width  int
	Write  bool
	V      Value
	W      Value
	Chan   int
	Bits   uint64
	Words  []uint32
	Engine guest.Engine
}

func (a Action) String() string {
	return fmt.Sprintf("%v region %d, register %06x, offset %#x, width %d, write %t, %+v, %+v, channel %d, bits %#x, %x, %v",
		a.Kind, a.Region, a.Reg, a.Off, a.Width, a.Write, a.V, a.W, a.Chan, a.Bits, a.Words, a.Engine)
}
