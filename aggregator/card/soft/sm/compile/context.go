package compile

import "reflect"

// Lanes is how many threads a warp has.
const Lanes = 32

// MaxDepth bounds the control stack of compiled code. Deeper programs go on in another executor.
const MaxDepth = 24

// A Context is all that the compiled function knows of its warp: plain data, in and out.
type Context struct {
	Regs  [Registers][Lanes]uint32
	Preds [Predicates]uint32 // lanes by predicate; the last is all ones
	Flags [4]uint32          // lanes: Zero, Sign, Carry, Overflow

	Active, Exited uint32
	Stack          [MaxDepth]uint32 // lanes of the entries of the control stack
	// Site is where to start, one of Program.Entries; then where the function stopped, one of
	// Program.Sites. A start that does not exist stops at BadSite at once.
	Site uint32

	Warp  uint32 // number in its block
	Block [3]uint32

	SharedSize uint32
	Shared     uint64 // host address
	Pages      uint64 // host address of the table of pages
	LocalBase  uint64 // address of the local memory of the block's threads

	Budget uint64 // instructions: checked on back edges
	Spent  uint64 // instructions, added to

	Banks [32]Bank

	Addr [Lanes]uint64    // of a scattered access: addresses
	Data [4][Lanes]uint32 // and words
}

// A Bank is a constant buffer. One that is not bound has no size.
type Bank struct{ Addr, Size uint64 }

// BadSite is where a function stops that was given no start.
const BadSite = ^uint32(0)

// The table of pages has one entry of 8 bytes for each page of 4 KiB of 40 bits of address: the host address
// of the page, and what may be done with it. Entries of addresses that are windows to shared or local memory
// are zero.
const (
	AddressBits  = 40
	PageBits     = 12
	PageReadable = 1
	PageWritable = 2
)

// ContextSize is the size of a Context in bytes.
var ContextSize = reflect.TypeFor[Context]().Size()

// offsetOf returns where a field of the context is.
func offsetOf(name string) uintptr {
	f, ok := reflect.TypeFor[Context]().FieldByName(name)
	if !ok {
		panic("compile: no field " + name)
	}
	return f.Offset
}
