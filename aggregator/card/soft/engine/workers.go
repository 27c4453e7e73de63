package engine

import (
	"runtime/debug"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
	"github.com/umbra-gpu/umbra/aggregator/fault"
)

// GridCache has what is derived from the Grid of the channel that ran last, and the workers that
// execute it. It belongs to a graphics engine, as channels are many.
//
// If a step has several workers, each is a goroutine, and the step ends when all have. They share the
// address space, the meter and the count of blocks under mu. So all charge one meter: it looks at the
// clock after the same amount of work, whoever did it.
type GridCache struct {
	workers []worker
	spare   []interp.BlockState // memory of the last launch's blocks; Block.Reset clears what a program can read
	of      *Grid
	launch  uint64 // counts launches, and changes of the channel

	mu sync.Mutex
	// Of the step under way.
	env         *Env
	description *sm.Launch
	taken       int  // how many of Grid.Running have had a worker
	once        bool // a worker is to end after a burst
	stopped     bool // a block went wrong
	fault       *interp.Fault
	panics      any
	working     sync.WaitGroup
}

// worker executes blocks of a grid, one after the other.
type worker struct {
	cache    *GridCache
	number   int
	executor simd.Executor
	launched uint64 // GridCache.launch when what follows was made
	launch   interp.Launch
	program  interp.Program
	block    interp.Block
	local    uint64 // address of the launch's local memory
	memory   gridMemory
	surfaces *[sm.Surfaces]sm.Surface
	texture.Unit
	start func() // the goroutine; here so that a step allocates nothing for it
}

// MaxWorkers bounds what a card keeps for programs: each worker has decoded instructions, and each
// launch that has not ended a block for each worker.
const MaxWorkers = 8

// NewGridCache makes the cache of an engine with a number of workers, 1 to MaxWorkers.
func NewGridCache(workers int) *GridCache {
	c := &GridCache{workers: make([]worker, workers)}
	for i := range c.workers {
		w := &c.workers[i]
		w.cache, w.number = c, i
		w.memory = gridMemory{w}
		w.start = func() {
			defer c.working.Done()
			w.work()
		}
	}
	return c
}

// serve makes the cache one of the channel's Grid.
func (e *Env) serve() *GridCache {
	c := e.GridCache
	if c.of != e.Grid {
		c.report(e)
		c.of, c.spare = e.Grid, nil
		c.launch++
	}
	return c
}

// report tells what the workers executed of their launch.
func (c *GridCache) report(env *Env) {
	for i := range c.workers {
		if w := &c.workers[i]; env.Ran != nil && w.launched == c.launch {
			env.Ran(w.executor.Ran())
		}
	}
}

// localSize is the bytes of local memory of a block.
func localSize(l *sm.Launch) uint64 {
	block := interp.Launch{Block: l.Block, LocalPos: l.LocalLow, LocalNeg: l.LocalHigh}
	return block.LocalSize()
}

// start gives a launch room for as many blocks at a time as there are workers, and as its local
// memory is for.
func (c *GridCache) start(grid *Grid, l *sm.Launch) {
	n := min(uint64(len(c.workers)), grid.Blocks)
	if size := localSize(l); size > 0 {
		n = min(n, l.Local.Size/size)
	}
	if uint64(len(c.spare)) < n {
		c.spare = make([]interp.BlockState, len(c.workers))
	}
	grid.Running, c.spare = c.spare[:n], nil
	c.launch++
}

// end takes the memory of a launch that has ended.
func (c *GridCache) end(grid *Grid) {
	c.launch++
	c.spare = grid.Running[:cap(grid.Running)]
	for i := range c.spare {
		b := &c.spare[i]
		*b = interp.BlockState{Warps: b.Warps[:0], Shared: b.Shared[:0]}
	}
}

// step executes a grid until the step's time is over, all blocks ended, or one goes wrong. A launch
// that ends within the first burst pays for no goroutine.
func (c *GridCache) step(env *Env, l *sm.Launch) *interp.Fault {
	grid := env.Grid
	c.env, c.description, c.stopped, c.fault, c.panics = env, l, false, nil, nil
	defer func() { c.env = nil }()
	if c.once = grid.Next == 0 && grid.Blocks > 0; c.once {
		c.execute(1)
		c.once = false
	}
	if !c.stopped && !env.Over() && !grid.ended() {
		c.execute(len(c.workers))
	}
	if c.panics != nil {
		panic(c.panics)
	}
	if n := len(grid.Running); n > len(c.workers) { // none waits for ever for another
		grid.Turn = (grid.Turn + len(c.workers)) % n
	}
	return c.fault
}

// execute lets workers work until each has no more to do. The step's own goroutine only waits: Go
// starts what it made last in its place, and others at once elsewhere.
func (c *GridCache) execute(workers int) {
	c.taken = min(workers, len(c.env.Grid.Running))
	if c.taken == 1 {
		c.workers[0].work()
		return
	}
	c.working.Add(c.taken)
	for i := range c.taken {
		go c.workers[i].start()
	}
	c.working.Wait()
}

// work executes blocks until the step ends.
func (w *worker) work() {
	c := w.cache
	defer c.contain()
	debug.SetPanicOnFault(true) // guest memory belongs to another process
	w.prepare()
	for n := w.number; n >= 0; n = c.take() {
		w.at((c.env.Grid.Turn + n) % len(c.env.Grid.Running))
		for !w.block.Done() || w.next() {
			spent, fault := w.executor.Step(&w.block, burst)
			if !c.goesOn(int64(spent)*costUnit, fault) {
				return
			}
		}
	}
}

// prepare makes a worker ready for a step.
func (w *worker) prepare() {
	if c := w.cache; w.launched != c.launch {
		w.launched = c.launch
		w.describe(c.description)
		w.executor.Start(&w.launch)
	}
	w.executor.Begin()
}

func (w *worker) describe(l *sm.Launch) {
	w.surfaces, w.local = &l.Surfaces, l.Local.Address
	w.Unit = texture.Unit{Memory: w.memory, Bound: &l.Textures}
	w.program = interp.Program{Memory: w.memory, Base: l.Region}
	w.launch = interp.Launch{
		Memory: w.memory, Units: w, Program: &w.program, Entry: uint32(l.Program - l.Region),
		Grid: l.Grid, Block: l.Block, GridID: l.ID,
		Registers: l.Registers, Barriers: l.Barriers, Shared: l.Shared, LocalPos: l.LocalLow, LocalNeg: l.LocalHigh,
		SharedWindow: uint32(l.SharedWindow), LocalWindow: uint32(l.LocalWindow),
	}
	for i, b := range l.Constants {
		w.launch.Banks[i] = interp.Bank{Addr: b.Address, Size: uint32(b.Size), Valid: b.Bound}
	}
}

// at gives a worker one of Grid.Running.
func (w *worker) at(n int) {
	w.launch.Local = w.local + uint64(n)*w.launch.LocalSize()
	w.block.Launch, w.block.BlockState = &w.launch, &w.cache.env.Grid.Running[n]
}

// take returns the number of one of Grid.Running that no worker has had in this step, -1 if there is
// none: there are more than workers if the grid was begun elsewhere.
func (c *GridCache) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == len(c.env.Grid.Running) || c.stopped || c.env.Over() {
		return -1
	}
	c.taken++
	return c.taken - 1
}

// next begins a block in place of the worker's last one. It reports false if there is none, or the
// step is over.
func (w *worker) next() bool {
	n, ok := w.cache.begin(w.launch.Warps())
	if ok {
		w.block.Reset(place(n, w.launch.Grid))
	}
	return ok
}

func (c *GridCache) begin(warps uint32) (n uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.env.Grid.Next == c.env.Grid.Blocks || c.stopped || c.env.Over() {
		return 0, false
	}
	c.env.Charge(costBlock * int64(warps))
	c.env.Grid.Next++
	return c.env.Grid.Next - 1, true
}

// goesOn charges what a worker did, and reports whether it may do more in this step.
func (c *GridCache) goesOn(cost int64, wrong *interp.Fault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.env.Charge(cost)
	if wrong != nil && !c.stopped {
		c.stopped, c.fault = true, wrong
	}
	return !c.stopped && !c.once && !c.env.Over()
}

// Broken is the panic of a step whose worker panicked: why, for the operator.
type Broken string

// contain keeps a worker's panic for the goroutine of the step.
func (c *GridCache) contain() {
	p := recover()
	if p == nil {
		return
	}
	if _, memory := p.(interface{ Addr() uintptr }); !memory {
		p = Broken(fault.Reason("a program", p))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.panics = true, p
}
