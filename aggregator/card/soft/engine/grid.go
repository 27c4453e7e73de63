package engine

import (
	"encoding/binary"
	"errors"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// Grid is a GR's launch that has not ended: that of Compute.Launch, while GR.Op says that there is
// one. It is plain data, and goes where the GR goes.
type Grid struct {
	Block  interp.BlockState // that runs or ran last
	Next   uint64            // how many were begun
	Blocks uint64

	Class uint16
	Stat  uint8
	// Refused: the address space refused an access, see GR.Fault. There is no way back into the
	// instruction.
	Refused bool
}

// GridCache has what is derived from the Grid of the channel that ran last. It belongs to a graphics
// engine, as channels are many, and is made again for another channel.
type GridCache struct {
	of       *Grid
	now      *runner // nil if the launch has ended
	executor simd.Executor
	block    interp.BlockState // memory of the last launch's block; another guest must not find it
}

// serve makes the cache one of the channel's Grid.
func (e *Env) serve() *GridCache {
	c := e.GridCache
	if c.of != e.Grid {
		if c.now != nil && e.Ran != nil {
			e.Ran(c.executor.Ran())
		}
		c.of, c.now, c.block = e.Grid, nil, interp.BlockState{}
	}
	return c
}

// runner executes a Grid.
type runner struct {
	launch   interp.Launch
	block    interp.Block
	memory   gridMemory
	surfaces *[sm.Surfaces]sm.Surface
	texture.Unit
}

// costUnit is what a unit of the executor's cost is charged, some 30 ns; see Meter. Look-ups of memory
// are charged apart. costBlock is what the start of a block is charged for a warp. burst is how many units are
// executed between two charges.
const (
	costUnit  = 64
	costBlock = 1024
	burst     = 1024
)

// startGrid begins a launch.
func (g *GR) startGrid(env *Env, c call) Outcome {
	l := &g.Compute.Launch
	*env.Grid = Grid{Blocks: uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2]), Class: c.class.ID, Stat: uint8(c.class.stat)}
	cache := env.serve()
	env.Grid.Block, cache.block, cache.now = cache.block, interp.BlockState{}, nil
	env.launched(c.class.stat)
	g.Op = Op{Kind: OpGrid, Class: c.class.ID, Stat: uint8(c.class.stat)}
	return g.work(env)
}

func newRunner(l *sm.Launch) *runner {
	r := &runner{surfaces: &l.Surfaces}
	r.Unit = texture.Unit{Memory: &r.memory, Bound: &l.Textures}
	r.launch = interp.Launch{
		Memory: &r.memory, Units: r, Program: &interp.Program{Memory: &r.memory, Base: l.Region}, Entry: uint32(l.Program - l.Region),
		Grid: l.Grid, Block: l.Block, GridID: l.ID,
		Registers: l.Registers, Barriers: l.Barriers, Shared: l.Shared, Local: l.Local.Address, LocalPos: l.LocalLow, LocalNeg: l.LocalHigh,
		SharedWindow: uint32(l.SharedWindow), LocalWindow: uint32(l.LocalWindow),
	}
	for i, b := range l.Constants {
		r.launch.Banks[i] = interp.Bank{Addr: b.Address, Size: uint32(b.Size), Valid: b.Bound}
	}
	return r
}

// runGrid executes instructions until the grid has ended or the step's time is over.
func (g *GR) runGrid(env *Env) Outcome {
	cache := env.serve()
	if cache.now == nil {
		cache.now = newRunner(&g.Compute.Launch)
		cache.executor.Start(&cache.now.launch)
	}
	r, executor, grid := cache.now, &cache.executor, env.Grid
	r.memory = gridMemory{env, executor}
	defer func() { r.memory.env = nil }()
	executor.Begin()
	block := &r.block
	block.Launch, block.BlockState = &r.launch, &grid.Block
	for !grid.Refused && !env.Over() {
		if block.Done() { // or none was begun
			if grid.Next == grid.Blocks {
				if env.Ran != nil {
					env.Ran(executor.Ran())
				}
				g.endGrid(env)
				return Done
			}
			block.Reset(grid.block(&r.launch))
			env.Charge(costBlock * int64(len(grid.Block.Warps)))
			grid.Next++
		}
		spent, fault := executor.Step(block, burst)
		env.Charge(int64(spent) * costUnit)
		if fault != nil {
			var refused refusedAccess
			if !errors.As(fault, &refused) {
				return g.gridError(env, fault)
			}
			g.Fault, grid.Refused = refused.Fault, true
			if env.ProgramFault != nil {
				env.ProgramFault(fault)
			}
		}
	}
	if grid.Refused {
		return Faulted
	}
	return Busy
}

// block is the place of the next block in the grid.
func (r *Grid) block(l *interp.Launch) [3]uint32 {
	x, y := uint64(l.Grid[0]), uint64(l.Grid[1])
	return [3]uint32{uint32(r.Next % x), uint32(r.Next / x % y), uint32(r.Next / (x * y))}
}

func (g *GR) endGrid(env *Env) {
	env.GridCache.block = interp.BlockState{Warps: env.Grid.Block.Warps[:0], Shared: env.Grid.Block.Shared[:0]}
	g.Op, *env.Grid, env.GridCache.now = Op{}, Grid{}, nil
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
	g.Refusal, g.ProgramError = Refusal{class, BadProgram, 0x368, g.Compute.Launch.Param}, programError(err)
	env.Stats.class[stat].Illegal.Add(1)
	if env.ProgramFault != nil {
		env.ProgramFault(err)
	}
	return Illegal
}

// gridMemory is the address space as a program reaches it: addresses beyond it do not wrap. A program can
// look up pages with each lane, so each access asks whether the step's time is over.
type gridMemory struct {
	env      *Env
	executor *simd.Executor
}

func (m *gridMemory) charged() {
	if m.env.Over() {
		m.executor.Stop()
	}
}

// within checks that n bytes at addr are in the address space.
func within(addr, n uint64) error {
	if addr > vaMask || n > 1<<vaBits-addr {
		return &interp.Fault{Cause: interp.BadAddress, Lane: -1, Addr: addr, What: "an address of more than 40 bits"}
	}
	return nil
}

// refusedAccess is the error of an access that the address space refused.
type refusedAccess struct{ Fault }

func (refusedAccess) Error() string { return "the address space refused an access" }

// Bytes implements simd.Pages: memory does not move before the step ends.
func (m *gridMemory) Bytes(addr uint64, n int, write bool) ([]byte, error) {
	if err := within(addr, uint64(n)); err != nil {
		return nil, err
	}
	b, fault := m.env.fetch(addr, uint64(n), write)
	m.charged()
	if fault != nil {
		return nil, refusedAccess{*fault}
	}
	return b, nil
}

func (m *gridMemory) Load(addr uint64, to []byte) error {
	if err := within(addr, uint64(len(to))); err != nil {
		return err
	}
	fault := read(m.env, addr, to)
	m.charged()
	if fault != nil {
		return refusedAccess{*fault}
	}
	return nil
}

func (m *gridMemory) Store(addr uint64, from []byte) error {
	if err := within(addr, uint64(len(from))); err != nil {
		return err
	}
	for len(from) > 0 {
		mem, fault := m.env.fetch(addr, uint64(len(from)), true)
		m.charged()
		if fault != nil {
			return refusedAccess{*fault}
		}
		n := copy(mem, from)
		from, addr = from[n:], addr+uint64(n)
	}
	return nil
}

// Update is not torn by other programs: the graphics engine serves one channel at a time, and does
// not leave an instruction half done.
func (m *gridMemory) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	var b [8]byte
	if err := m.Load(addr, b[:size]); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(b[:])
	binary.LittleEndian.PutUint64(b[:], f(old))
	return old, m.Store(addr, b[:size])
}
