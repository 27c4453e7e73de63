package engine

import (
	"os"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Native runs the programs of one owner of channels as machine code, in another process.
type Native interface {
	// Run goes on with a launch until its step is over, all its blocks ended, or a block needs a processor of
	// this process.
	Run(j *Job) NativeResult
	// Executed reports how long the step that began a launch, of Grid.Next blocks until then, would take one processor of this
	// process, in nanoseconds.
	Executed(j *Job, took uint64)
}

// A Job is a launch that has not ended, for one step.
type Job struct {
	Launch *sm.Launch
	Blocks interp.Launch // what the blocks know of it, without memory
	Number uint64        // of the launch: each has another
	Grid   *Grid         // Run changes Running, Next and Taken
	Places Places        // of the launch's memory
	Left   func() uint64 // nanoseconds of the step that are left
}

// NativeResult says how a Run ended.
type NativeResult struct {
	Outcome NativeOutcome
	Slot    int           // of NeedsProcessor: the block's place in Grid.Running
	Fault   *interp.Fault // of NativeFault
}

// NativeOutcome says what the processors do next.
type NativeOutcome uint8

// The outcomes.
const (
	NotNative      NativeOutcome = iota // nothing ran: the processors execute this step
	RanNative                           // the step is over, or the grid has ended
	NeedsProcessor                      // a block's next instruction has no machine code, or is wrong
	NativeFault                         // the process was lost with blocks under way
)

// Places finds the memory of an address space in files, for processes that map them.
type Places interface {
	// Place returns memory around an address of a program. It reports false if only this process can reach it,
	// or nobody. Memory that was not asked for to be written may be read only.
	Place(va uint64, write bool) (Place, bool)
	// Version changes when what Place returned before is no longer true.
	Version() uint64
}

// A Place is memory of an address space: whole pages, which lie together in a file.
type Place struct {
	VA, Size uint64
	File     *os.File
	Off      uint64
	Write    bool
	Step     bool // it is only true until the end of the step
}

// runNative goes on with a grid as machine code, where there is some. The processors execute what it leaves.
func (all *Processors) runNative(env *Env, l *sm.Launch) {
	grid, step := env.Grid, &all.step
	if env.Native == nil {
		return
	}
	if all.job.Number != all.launch.number {
		all.job = Job{Launch: l, Blocks: launchOf(l), Number: all.launch.number}
	}
	all.job.Grid, all.job.Places, all.job.Left = grid, env.Places, env.Left
	for !step.stopped && !env.Over() && !grid.Ended() {
		r := env.Native.Run(&all.job)
		env.look()
		switch r.Outcome {
		case NotNative:
			return
		case NativeFault:
			step.stopped, step.fault = true, r.Fault
		case NeedsProcessor:
			grid.Turn, step.once = r.Slot, true
			all.execute(1)
			step.once = false
		}
	}
}
