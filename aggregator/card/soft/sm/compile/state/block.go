package state

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"

// Sizes of the parts of a state.
const (
	Registers  = 64
	Predicates = 8
	// MaxDepth bounds the control stack. Deeper warps stay in interp's form.
	MaxDepth    = 24
	MaxBarriers = 16
	MaxLocks    = 1024
	// MaxWarps bounds the warps of a block.
	MaxWarps = 64
	// MaxShared bounds the shared memory of a block.
	MaxShared = 1 << 20
)

// MostTaken is how many blocks a thread takes at once at most.
const MostTaken = 32

// cacheLine is apart what threads write from what others read.
const cacheLine = 64

// Work says which blocks of a grid nobody has taken.
type Work struct {
	Next  uint64 // number of the next block. Threads add to it at once, and may pass Count by MostTaken each
	Count uint64 // of the grid
	_     [cacheLine - 16]byte
	Stop  uint32 // not zero: threads stop after the turn that is under way. They read it at each turn
	_     [cacheLine - 4]byte
}

// A Block is the header of a state. Its warps follow, and then its shared memory.
type Block struct {
	ID            [3]uint32
	Begun         uint32 // it is a block that is not done
	Warps, Shared uint32
	Turn          uint32 // the warp that ran last
	Locks         uint32 // how many of Held
	Running       uint32 // warps that are not done
	Busy          uint32 // some barrier may have warps
	Clock         uint64
	Next, End     uint64 // further blocks that this thread has taken and not begun
	Barriers      [MaxBarriers]Barrier
	Held          [MaxLocks]Lock
}

// A Barrier counts the warps that arrived, see interp.Barrier.
type Barrier struct{ Arrived, Expected, True, Any, Not uint32 }

// A Lock is a word of shared memory that a lane holds.
type Lock struct {
	Addr       uint32
	Warp, Lane uint16
}

// A Warp is 32 lanes that share a program counter, see interp.Warp.
type Warp struct {
	Regs           [Registers][interp.Lanes]uint32
	Preds          [Predicates]uint32
	Flags          [4]uint32 // lanes: zero, sign, carry, overflow
	Active, Exited uint32
	PC             uint32
	Depth          uint32
	Stack          [MaxDepth]Entry
	Wait           int32
	WaitPC, WaitBy uint32

	// For compiled code: where to start, or Unknown. Then where it stopped, which says what Stack is but for
	// its lanes, or Unknown if Stack says it itself. Quiet: it waits at a barrier that gives no result.
	Start, Site, Quiet uint32
}

// Unknown is no number of a place.
const Unknown = ^uint32(0)

// An Entry of the control stack.
type Entry struct{ Kind, Target, Lanes uint32 }

// A Turn is what a warp ran at once.
type Turn struct {
	Warp, Instructions uint32
}
