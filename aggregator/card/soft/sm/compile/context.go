package compile

import (
	"reflect"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// Lanes is how many threads a warp has.
const Lanes = 32

// MaxDepth bounds the control stack of compiled code. Deeper programs go on in another executor.
const MaxDepth = state.MaxDepth

// A Context is all that compiled code knows of its launch and of the thread that runs it: plain data. What a
// warp has reached is in its state.Warp.
type Context struct {
	Pages      uint64 // host address of the table of pages
	LocalBase  uint64 // address of the local memory of the block's threads
	Shared     uint64 // host address
	SharedSize uint32
	Warp       uint32 // number in its block
	Block      [3]uint32
	Grid       [3]uint32

	// Budget is checked on back edges: they leave the code when Spent has reached it. Accesses of many pages
	// take from it what they cost beyond their instruction.
	Budget uint64
	Spent  uint64 // instructions, added to

	Banks [32]Bank

	Constants [MaxConstants]uint64 // host addresses of Program.Constants, zero if there is none

	Addr [Lanes]uint64    // of a scattered access: addresses
	Data [4][Lanes]uint32 // and words

	Helpers [len(helperNames)]uint64 // functions of Support, by the order of their names

	Loop Loop
}

// Loop is what the function Blocks works on.
type Loop struct {
	Code, Sites uint64 // host addresses of the program's function, and of its table of places, see Program.Table
	Work, Block uint64 // host addresses of a state.Work and of a state.Block
	Limit       uint64 // of Cost
	Cost        uint64 // added to: instructions, and what accesses cost beyond them
	Ran         uint64 // added to: instructions
	Slice       uint64 // instructions of a warp's turn
	Turns       uint64 // host address of a list of state.Turn; zero if nobody wants it
	MaxTurns    uint64
	NumTurns    uint64

	// How a block begins.
	Clear  uint64    // registers that are read before they are written
	Starts [2]uint32 // entrances of a partial warp and of a full one
	Entry  uint32
	Last   uint32 // lanes of the last warp
	Why    uint32 // the result
	_      uint32
}

// Why is the reason for which Blocks returns.
type Why uint32

// The reasons.
const (
	Exhausted Why = iota // no blocks are left
	Budget               // Limit is reached, or the list of turns is full
	Stopped              // by Work.Stop
	Left                 // the warp whose turn it is needs another executor for an instruction
	Deadlock             // no warp can run
	Settle               // a barrier is complete, and another executor knows what it gives
)

// MaxConstants bounds how many words of constants a program reads at fixed places. More are left to another
// executor.
const MaxConstants = 128

// A Bank is a constant buffer. One that is not bound has no size.
type Bank struct{ Addr, Size uint64 }

// BadSite is where a function stops that was given no start.
const BadSite = state.Unknown

// The table of pages has one entry of 8 bytes for each page of 4 KiB of 40 bits of address: the host address
// of the page, and what may be done with it. Entries of addresses that are windows to shared or local memory
// are zero.
const (
	AddressBits  = 40
	PageBits     = 12
	PageReadable = 1
	PageWritable = 2
)

// offsetOf returns where a field of the context is.
func offsetOf(name string) uintptr { return fieldOf[Context](name) }

func fieldOf[T any](name string) uintptr {
	f, ok := reflect.TypeFor[T]().FieldByName(name)
	if !ok {
		panic("compile: no field " + name)
	}
	return f.Offset
}
