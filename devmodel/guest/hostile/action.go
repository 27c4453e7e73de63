package hostile

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/devmodel/guest"
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

// Gen draws up to n actions.
func Gen(n int) *rapid.Generator[[]Action] {
	return rapid.SliceOfN(rapid.Custom(draw), 1, n)
}

// kinds: the rarer ones once.
var kinds = []Kind{
	Access, Access, Register, Register, Register, Window, Window, Entry, Entry, BigEntry, BigEntry, Dir, Dir,
	Block, Block, Block, Ring, Push, Push, Engine, Engine, List, Tables, Tables, Unmap, Elsewhere, Restart,
}

func draw(t *rapid.T) Action {
	return Action{
		Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
		Region: rapid.SampledFrom([]int{0, 0, 0, 1, 1, 3, 5, 7}).Draw(t, "region"),
		Reg:    drawRegister(t),
		Off:    rapid.Uint64Range(0, 1<<28).Draw(t, "offset"),
		Width:  rapid.SampledFrom([]int{1, 2, 4, 4, 4, 8, 8, 3, 16, 64, 4096}).Draw(t, "width"),
		Write:  rapid.Bool().Draw(t, "write"),
		V:      drawValue(t),
		W:      drawValue(t),
		Chan:   rapid.IntRange(0, 127).Draw(t, "channel"),
		Bits:   drawBits(t),
		Words:  rapid.SliceOfN(rapid.Custom(drawWord), 1, 12).Draw(t, "words"),
		Engine: rapid.SampledFrom(guest.CopyEngines).Draw(t, "engine"),
	}
}

func drawValue(t *rapid.T) Value {
	return Value{
		Base: Base(rapid.IntRange(0, int(baseCount)-1).Draw(t, "base")),
		Off: rapid.OneOf(
			rapid.Int64Range(-64, 64),
			rapid.Map(rapid.Int64Range(-4096, 4096), func(p int64) int64 { return p << 12 }),
			rapid.Map(rapid.Int64Range(-64, 64), func(p int64) int64 { return p << 20 }),
		).Draw(t, "off"),
		Shift: rapid.SampledFrom([]uint8{0, 8, 12, 16}).Draw(t, "shift"),
		Or:    drawBits(t),
	}
}

// drawBits draws a few bits, mostly the ones that mean something somewhere.
func drawBits(t *rapid.T) uint64 {
	return rapid.OneOf(
		rapid.Just(uint64(0)),
		rapid.Map(rapid.IntRange(0, 63), func(b int) uint64 { return 1 << b }),
		rapid.SampledFrom([]uint64{1, 3, 7, 0x80000000, 0xc0000000, 0xf0000000, 2 << 33, 3 << 33, 0xff << 36}),
		rapid.Uint64(),
	).Draw(t, "bits")
}

// drawWord draws a word of a pushbuffer: a header of any method, or any word.
func drawWord(t *rapid.T) uint32 {
	w := rapid.Uint32().Draw(t, "word")
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		return w
	case 1: // an increasing header of a host method
		return 1<<29 | w&7<<16 | w>>3&7<<13 | w>>6&0x3f
	case 2: // any header of few words
		return w&^(0x1ff8<<16) | w&7<<16
	default: // a small number
		return w & 0xfff
	}
}

// register is a run of registers that name something: a channel, an instance
// block, a directory, an address, a unit.
type register struct {
	base, stride uint32
	count        int
}

var registers = []register{
	{0x000140, 4, 2}, {0x000200, 4, 2}, {0x000640, 4, 2}, // interrupts, units on and off
	{0x001700, 4, 2}, {0x001714, 4, 1}, // PRAMIN, BAR1, BAR3
	{0x002100, 4, 1}, {0x002140, 4, 1}, {0x002200, 4, 8},
	{0x002254, 4, 1}, {0x002270, 4, 4}, // USERD, runlist
	{0x00252c, 4, 1}, {0x00254c, 4, 1}, {0x00259c, 4, 5}, {0x002628, 4, 4}, {0x002640, 4, 6},
	{0x002800, 4, 128}, {0x002a00, 4, 2}, {0x002a30, 4, 6},
	{0x003000, 4, 256}, // the channel table
	{0x0400c0, 0x2000, 3}, {0x040108, 0x2000, 3}, {0x04010c, 0x2000, 3}, {0x040120, 0x2000, 3},
	{0x070000, 4, 5}, {0x100c10, 4, 1}, {0x100c80, 4, 2}, {0x100cb8, 4, 2}, // flush, MMU
	{0x104050, 4, 2}, {0x105050, 4, 2}, {0x104084, 4, 1}, // copy engines' channels
	{0x10a1c0, 4, 2}, {0x10a100, 4, 4}, // PMU
	{0x400500, 4, 1}, {0x400700, 4, 1}, {0x404488, 4, 2}, {0x409500, 4, 2}, {0x409800, 4, 8}, {0x409b00, 4, 2}, {0x4091c0, 4, 2},
	{0x4188b4, 4, 2}, {0x610010, 4, 1}, {0x088000, 4, 64},
}

func drawRegister(t *rapid.T) uint32 {
	r := rapid.SampledFrom(registers).Draw(t, "register")
	return r.base + r.stride*uint32(rapid.IntRange(0, r.count-1).Draw(t, "index"))
}
