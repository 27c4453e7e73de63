package interp

import (
	"fmt"
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// exec is one warp instruction in execution.
type exec struct {
	b     *Block
	w     *Warp
	warp  int
	in    *Code
	pc    uint32
	lanes uint32 // active ones whose guard is true
	fault *Fault
}

// laneOps execute an instruction in one lane, warpOps in all lanes of a warp. An operation in
// neither is not implemented.
var (
	laneOps [isa.NumOps]func(x *exec, lane int)
	warpOps [isa.NumOps]func(x *exec)

	setsFlags, usesFlags [isa.NumOps]bool
)

// Step executes up to n warp instructions and returns how many it did. It returns fewer if the
// block ended. After a fault the block must not run again.
func (b *Block) Step(n int) (int, *Fault) {
	for done := range n {
		w := b.NextWarp()
		if w < 0 {
			return done, b.Stuck()
		}
		if f := b.StepWarp(w); f != nil {
			return done + 1, f
		}
	}
	return n, nil
}

// turn is how many instructions a warp executes before the next one does, unless it ends or waits.
// Longer turns keep its registers in the cache; shorter ones waste less on a warp that tries for a lock.
const turn = 128

// NextWarp returns the warp whose turn it is, -1 if none can run.
func (b *Block) NextWarp() int {
	if b.Left > 0 && b.Warps[b.Turn].Runs() {
		return b.Turn
	}
	for range b.Warps {
		b.Turn = (b.Turn + 1) % len(b.Warps)
		if b.Warps[b.Turn].Runs() {
			b.Left = turn
			return b.Turn
		}
	}
	return -1
}

// Stuck is the fault of a block none of whose warps can run, nil if it is done.
func (b *Block) Stuck() *Fault {
	for i := range b.Warps {
		if w := &b.Warps[i]; !w.Done() {
			x := exec{b: b, w: w, warp: i, pc: w.WaitPC}
			x.in, _ = b.Launch.Program.at(w.WaitPC)
			x.fail(Deadlock, -1, 0, "")
			return x.fault
		}
	}
	return nil
}

// StepWarp executes one instruction of a warp, which must be able to.
func (b *Block) StepWarp(n int) *Fault {
	b.Clock++
	b.Left--
	x := b.begin(n, b.Warps[n].PC)
	w := x.w
	if w.PC%4 != 0 {
		x.fail(BadPC, -1, 0, "misaligned")
		return x.fault
	}
	var err error
	if x.in, err = b.Launch.Program.at(w.PC); err != nil {
		x.refused(BadPC, -1, 0, "no memory", err)
		return x.fault
	}
	if x.in.Good(b.Launch) {
		x.in.runs++
	}
	return x.execute()
}

// Execute executes the instruction at the warp's program counter, lane by lane, and does not count
// it. It serves executors that have a faster way for other instructions.
func (b *Block) Execute(n int, c *Code) *Fault {
	x := b.begin(n, b.Warps[n].PC)
	x.in = c
	return x.execute()
}

// begin makes an instruction of a warp, in place of the one before it.
func (b *Block) begin(n int, pc uint32) *exec {
	b.now = exec{b: b, w: &b.Warps[n], warp: n, pc: pc}
	return &b.now
}

func (x *exec) execute() *Fault {
	w := x.w
	if x.in.bad != "" {
		x.fail(x.in.cause, -1, 0, x.in.bad)
		return x.fault
	}
	if x.in.registers > x.b.Launch.Registers {
		x.fail(BadRegister, -1, 0, fmt.Sprintf("register %d, the launch has %d", x.in.registers-1, x.b.Launch.Registers))
		return x.fault
	}
	w.PC += uint32(x.in.Size)
	x.lanes = w.Active & w.Preds[x.in.Guard.Pred]
	if x.in.Guard.Not {
		x.lanes = w.Active &^ w.Preds[x.in.Guard.Pred]
	}
	if op := warpOps[x.in.Op]; op != nil {
		if x.lanes != 0 {
			op(x)
		}
	} else {
		op := laneOps[x.in.Op]
		for lane := range x.each {
			op(x, lane)
		}
	}
	if x.in.Join && x.fault == nil {
		x.join()
	}
	return x.fault
}

// Join lets lanes take the join of an instruction that they executed.
func (b *Block) Join(n int, c *Code, pc, lanes uint32) *Fault {
	x := b.begin(n, pc)
	x.in, x.lanes = c, lanes
	x.join()
	return x.fault
}

// each yields the lanes that execute the instruction, until one has a fault.
func (x *exec) each(yield func(lane int) bool) {
	for rest := x.lanes; rest != 0 && x.fault == nil; rest &= rest - 1 {
		if !yield(bits.TrailingZeros32(rest)) {
			return
		}
	}
}

// fail records the first fault. Lane -1 is the warp.
func (x *exec) fail(c Cause, lane int, addr uint64, what string) {
	if x.fault != nil {
		return
	}
	x.fault = &Fault{Cause: c, PC: x.pc, Block: x.b.ID, Warp: x.warp, Lane: lane, Addr: addr, What: what}
	if x.in != nil && x.in.Form != nil {
		x.fault.Text = x.in.String()
	}
}

// refused is fail for an access that Memory did not carry out.
func (x *exec) refused(c Cause, lane int, addr uint64, what string, err error) {
	if x.fault == nil {
		x.fail(c, lane, addr, what)
		x.fault.Err = err
	}
}
