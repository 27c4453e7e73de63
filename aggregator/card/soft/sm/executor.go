package sm

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// An Executor runs the blocks of a launch, one after the other, and then of other launches. It belongs
// to one goroutine. What a program has reached between two steps is in the block's interp.BlockState,
// and nowhere else: any executor goes on where another stopped. Whoever makes executors ends what they
// share, a process for example.
type Executor interface {
	// Start begins a launch, whose program may have other code than that of the last one. l.Memory may
	// offer more than interp.Memory has; an executor finds out.
	Start(l *interp.Launch)
	// Begin begins a step of the launch: slices of memory that the executor kept are no longer valid.
	Begin()
	// Step executes instructions of a block of the launch until their cost reaches a budget, in units
	// of the fastest instruction of package simd, or the block ended. It returns the cost. After a
	// fault the block must not run again.
	Step(b *interp.Block, budget int) (spent int, fault *interp.Fault)
	// Stop ends the Step under way after its instruction. Memory and units call it, from within that,
	// when look-ups have taken the time of their owner: their cost is not that of the instruction.
	Stop()
	// Ran counts the warp instructions of the launch so far, by form.
	Ran() map[*isa.Form]uint64
}
