package engine

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Processors execute the programs of a graphics engine's channels, of one at a time. If a step has
// several, each is a goroutine, and the step ends when all have.
type Processors struct {
	all    []processor
	launch gridLaunch
	step   gridStep
	job    Job // of the last launch that Env.Native was asked to run
}

// MaxProcessors bounds what a card keeps for programs: each processor has decoded instructions, and
// each launch that has not ended a block for each processor.
const MaxProcessors = 8

// NewProcessors makes processors of an engine, 1 to MaxProcessors, each with an executor of its own.
func NewProcessors(n int, executor func() sm.Executor) *Processors {
	all := &Processors{all: make([]processor, n)}
	for i := range all.all {
		p := &all.all[i]
		p.pool, p.number, p.executor = all, i, executor()
		p.memory = gridMemory{p}
		p.start = func() {
			defer all.step.working.Done()
			p.work()
		}
	}
	return all
}

// serve makes the processors serve the channel's Grid.
func (e *Env) serve() *Processors {
	all := e.Processors
	if all.launch.of != e.Grid {
		all.report(e)
		all.launch.switchTo(e.Grid)
	}
	return all
}

// report tells what the processors executed of their launch.
func (all *Processors) report(env *Env) {
	for i := range all.all {
		if p := &all.all[i]; env.Ran != nil && p.launched == all.launch.number {
			env.Ran(p.executor.Ran())
		}
	}
}

// run executes a step of a grid: until the step's time is over, all blocks ended, or one goes wrong. A
// launch that ends within the first burst pays for no goroutine.
func (all *Processors) run(env *Env, l *sm.Launch) *interp.Fault {
	grid, step := env.Grid, &all.step
	step.start(env, l)
	defer step.end()
	grid.Steps++
	all.runNative(env, l)
	begins := grid.Next == 0 && grid.Blocks > 0 && !step.stopped
	if step.once = begins; step.once {
		all.execute(1)
		step.once = false
	}
	if !step.stopped && !env.Over() && !grid.Ended() {
		all.execute(len(all.all))
	}
	if step.panics != nil {
		panic(step.panics)
	}
	if env.Native != nil && begins {
		env.Native.Executed(&all.job, uint64(step.cost)*unitTime/costUnit)
	}
	if n := len(grid.Running); n > len(all.all) { // none waits for ever for another
		grid.Turn = (grid.Turn + len(all.all)) % n
	}
	return step.fault
}

// execute lets up to n processors work until each has no more to do. The step's own goroutine only
// waits: Go starts what it made last in its place, and others at once elsewhere.
func (all *Processors) execute(n int) {
	step := &all.step
	n = min(n, len(step.env.Grid.Running))
	step.taken = n
	if n == 1 {
		all.all[0].work()
		return
	}
	step.working.Add(n)
	for i := range n {
		go all.all[i].start()
	}
	step.working.Wait()
}
