package simd

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// row is one register of all lanes of a warp.
type row = [interp.Lanes]uint32

const allLanes = ^uint32(0)

// An Executor runs the blocks of a launch, one after the other, and then of other launches. It keeps
// the instructions that it decoded. The zero value is ready for Start.
type Executor struct {
	launch *interp.Launch
	cache  cache
	code   table
	// windows are where shared and local memory are in the global addresses.
	windows [2]uint64
	memory  memory

	block  *interp.Block
	budget int // of the step under way
	// Of the instruction.
	warp  int
	w     *interp.Warp
	lanes uint32 // active ones whose guard is true; not zero
	// scratch has results before they are merged into the lanes.
	scratch [4]row
	addr    [interp.Lanes]uint64
}

// Start begins a launch, whose program may have other code than that of the last one.
func (x *Executor) Start(l *interp.Launch) {
	x.launch, x.windows = l, [2]uint64{window(l.SharedWindow), window(l.LocalWindow)}
	x.memory.pages, _ = l.Memory.(Pages)
	x.code.forget()
	x.Begin()
}

// Begin drops what is known of memory.
func (x *Executor) Begin() {
	x.cache.generation++
	x.memory.forget()
}

// Costs of instructions, in units of the fastest.
const (
	costRow  = 1
	costPage = 4   // loads, stores and control flow
	costLane = 64  // lane by lane
	costSlow = 512 // the slowest of these: doubles with directed rounding, textures
)

// Step executes instructions until their cost reaches a budget, or the block ended. It returns the
// cost. After a fault the block must not run again.
func (x *Executor) Step(b *interp.Block, budget int) (spent int, fault *interp.Fault) {
	x.block, x.budget = b, budget
	for spent < x.budget && fault == nil {
		n := b.NextWarp()
		if n < 0 {
			return spent, b.Stuck()
		}
		spent, fault = x.turn(n, spent)
	}
	return spent, fault
}

// Stop ends the step under way after its instruction. Memory and units call it when look-ups have
// taken the time of their owner: their cost is not that of the instruction.
func (x *Executor) Stop() { x.budget = 0 }

// turn executes instructions of a warp until its turn or the budget ends. It returns what the step
// has spent.
func (x *Executor) turn(n, spent int) (int, *interp.Fault) {
	var fault *interp.Fault
	b := x.block
	w := &b.Warps[n]
	x.warp, x.w = n, w
	for b.Left > 0 && spent < x.budget {
		o := x.code.at(w.PC)
		if o == nil {
			if o = x.fetch(w.PC); o == nil {
				return spent + costLane, b.StepWarp(n)
			}
		}
		b.Clock++
		b.Left--
		spent += int(o.cost)
		pc := w.PC
		w.PC = pc + o.size
		lanes := w.Active & (w.Preds[o.guard&7] ^ o.unless)
		if x.lanes = lanes; o.run != nil && (lanes == 0 || o.run(x, o)) {
			if o.Join {
				fault = b.Join(n, o.Code, pc, lanes)
			}
		} else {
			w.PC = pc
			spent += int(o.slow)
			fault = b.Execute(n, o.Code)
		}
		if o.runs++; fault != nil {
			return spent, fault
		}
		if o.stops && !w.Runs() {
			break
		}
	}
	return spent, nil
}

// source returns the row of a source; nil if it cannot be had.
func (x *Executor) source(s *source) *row {
	if s.row == nil {
		return &x.w.Regs[s.reg&isa.Zero]
	}
	if s.constant && !x.refresh(s) {
		return nil
	}
	return s.row
}

// result returns where to put a result of all lanes.
func (x *Executor) result(reg uint8, scratch int) *row {
	if x.lanes == allLanes && reg != isa.Zero {
		return &x.w.Regs[reg&isa.Zero]
	}
	return &x.scratch[scratch&3]
}

// merge writes a result that is not in its place to the lanes.
func (x *Executor) merge(reg uint8, from *row) {
	to := &x.w.Regs[reg&isa.Zero]
	if reg == isa.Zero || to == from {
		return
	}
	x.put(to, from)
}

func (x *Executor) put(to, from *row) {
	if x.lanes == allLanes {
		*to = *from
		return
	}
	mergeRows(to, from, x.lanes)
}

// truth returns the lanes in which a predicate source is true.
func (x *Executor) truth(v *isa.Operand) uint32 {
	t := x.w.Preds[v.Reg&7]
	if v.Not {
		return ^t
	}
	return t
}

// setPred writes a predicate to the lanes.
func (x *Executor) setPred(p uint8, lanes uint32) {
	if p != isa.True {
		to := &x.w.Preds[p&7]
		*to = *to&^x.lanes | lanes&x.lanes
	}
}

func setLanes(to *uint32, at, lanes uint32) { *to = *to&^at | lanes&at }
