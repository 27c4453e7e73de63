package engine

import (
	"errors"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Grid is a GR's launch that has not ended: that of Compute.Launch, while GR.Op says that there is
// one. It is plain data, and goes where the GR goes.
type Grid struct {
	// Running are the blocks that were begun and did not end, and the memory of some that did. Each has
	// its part of the launch's local memory, by its index.
	Running []interp.BlockState
	Turn    int    // which of them is first in the next step, if they are more than processors
	Next    uint64 // how many were taken
	Blocks  uint64
	// Taken are blocks that were taken for one of Running, several at once, and not begun.
	Taken [MaxProcessors]Range
	Steps uint32 // that worked on it

	Class uint16
	Stat  uint8
	// Refused: the address space refused an access, see GR.Fault. There is no way back into the
	// instruction.
	Refused bool
}

// A Range is blocks from Next to before End.
type Range struct{ Next, End uint64 }

// costUnit is what a unit of the executor's cost is charged, some unitTime nanoseconds; see Meter. Look-ups of memory
// are charged apart, and pages that are found in Env.Pages costFound. costBlock is what the start of a
// block is charged for a warp. burst is how many units are executed between two charges.
const (
	costUnit  = 64
	unitTime  = 30
	costFound = 128
	costBlock = 1024
	burst     = 1024
)

// startGrid begins a launch.
func (g *GR) startGrid(env *Env, c call) Outcome {
	l := &g.Compute.Launch
	*env.Grid = Grid{Blocks: uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2]), Class: c.class.ID, Stat: uint8(c.class.place)}
	all := env.serve()
	all.launch.begin(env.Grid, l, len(all.all))
	env.launched(c.class.place)
	g.Op = c.class.op(OpGrid)
	return g.work(env)
}

// runGrid executes instructions until the grid has ended or the step's time is over.
func (g *GR) runGrid(env *Env) Outcome {
	grid := env.Grid
	if grid.Refused {
		return Faulted
	}
	processors := env.serve()
	switch fault := processors.run(env, &g.Compute.Launch); {
	case fault != nil:
		var refused refusedAccess
		if !errors.As(fault, &refused) {
			return g.gridError(env, fault)
		}
		g.Fault, grid.Refused, grid.Running = refused.Fault, true, nil
		if env.ProgramFault != nil {
			env.ProgramFault(fault)
		}
		return Faulted
	case grid.Ended():
		processors.report(env)
		g.endGrid(env)
		return Done
	}
	return Busy
}

// Ended reports whether no block is left to begin, nor under way.
func (r *Grid) Ended() bool {
	for i := range r.Running {
		if !r.Running[i].Done() {
			return false
		}
	}
	for _, t := range r.Taken {
		if t.Next < t.End {
			return false
		}
	}
	return r.Next == r.Blocks
}

// Take returns the number of a block that was not begun, and is now. It reports false if there is none.
func (r *Grid) Take() (n uint64, ok bool) {
	for i := range r.Taken {
		if t := &r.Taken[i]; t.Next < t.End {
			t.Next++
			return t.Next - 1, true
		}
	}
	if r.Next == r.Blocks {
		return 0, false
	}
	r.Next++
	return r.Next - 1, true
}

// place is where block n is in a grid.
func place(n uint64, grid [3]uint32) [3]uint32 {
	x, y := uint64(grid[0]), uint64(grid[1])
	return [3]uint32{uint32(n % x), uint32(n / x % y), uint32(n / (x * y))}
}

func (g *GR) endGrid(env *Env) {
	env.Processors.launch.end(env.Grid)
	g.Op, *env.Grid = Op{}, Grid{}
}

// gridError ends a grid whose program did what it must not, and the macro that launched it.
func (g *GR) gridError(env *Env, err error) Outcome {
	class, stat := env.Grid.Class, env.Grid.Stat
	g.endGrid(env)
	g.Macro.Active = false
	return g.refuseProgram(env, class, int(stat), err)
}

// refuseProgram refuses the last launch for what its program did, or for what is missing here.
func (g *GR) refuseProgram(env *Env, class uint16, stat int, err error) Outcome {
	g.ProgramError = programError(err)
	if env.ProgramFault != nil {
		env.ProgramFault(err)
	}
	return g.refuse(env, stat, Refusal{class, BadProgram, 0x368, g.Compute.Launch.Param})
}
