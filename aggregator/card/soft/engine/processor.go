package engine

import (
	"runtime/debug"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// processor executes blocks of a grid, one after the other.
type processor struct {
	pool     *Processors
	number   int
	executor sm.Executor
	start    func() // the goroutine; here so that a step allocates nothing for it

	launched uint64 // gridLaunch.number when what follows was made
	launch   interp.Launch
	program  interp.Program
	block    interp.Block
	local    uint64 // address of the launch's local memory
	memory   gridMemory
	pages    *Pages // Env.Pages of the step
	found    int64  // cost of what was found there, which is not charged yet
	units    Units
}

// work executes blocks until the step ends.
func (p *processor) work() {
	step := &p.pool.step
	defer step.contain()
	debug.SetPanicOnFault(true) // guest memory belongs to another process
	p.prepare()
	grid := step.env.Grid
	for n := p.number; n >= 0; n = step.take() {
		p.at(grid, (grid.Turn+n)%len(grid.Running))
		for !p.block.Done() || p.next() {
			spent, fault := p.executor.Step(&p.block, burst)
			cost := int64(spent)*costUnit + p.found
			p.found = 0
			if !step.goesOn(cost, fault) {
				return
			}
		}
	}
}

// prepare makes a processor ready for a step.
func (p *processor) prepare() {
	if n := p.pool.launch.number; p.launched != n {
		p.launched = n
		p.describe(p.pool.step.description)
		p.executor.Start(&p.launch)
	}
	p.pages, p.found = p.pool.step.env.Pages, 0
	p.executor.Begin()
}

func (p *processor) describe(l *sm.Launch) {
	p.local = l.Local.Address
	p.units = *NewUnits(p.memory, &l.Textures, &l.Surfaces)
	p.program = interp.Program{Memory: p.memory, Base: l.Region}
	p.launch = launchOf(l)
	p.launch.Memory, p.launch.Units, p.launch.Program = p.memory, &p.units, &p.program
}

// launchOf is what a launch's blocks know of it, without what executes them.
func launchOf(l *sm.Launch) interp.Launch {
	out := interp.Launch{
		Entry: uint32(l.Program - l.Region), Grid: l.Grid, Block: l.Block, GridID: l.ID,
		Registers: l.Registers, Barriers: l.Barriers, Shared: l.Shared, LocalPos: l.LocalLow, LocalNeg: l.LocalHigh,
		SharedWindow: uint32(l.SharedWindow), LocalWindow: uint32(l.LocalWindow),
	}
	for i, b := range l.Constants {
		out.Banks[i] = interp.Bank{Addr: b.Address, Size: uint32(b.Size), Valid: b.Bound}
	}
	return out
}

// at gives a processor one of Grid.Running.
func (p *processor) at(grid *Grid, n int) {
	p.launch.Local = p.local + uint64(n)*p.launch.LocalSize()
	p.block.Launch, p.block.BlockState = &p.launch, &grid.Running[n]
}

// next begins a block in place of the last one. It reports false if there is none, or the step is over.
func (p *processor) next() bool {
	n, ok := p.pool.step.begin(p.launch.Warps())
	if ok {
		p.block.Reset(place(n, p.launch.Grid))
	}
	return ok
}
