package engine

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// A Runner runs blocks of a launch, one at a time. What a block has reached is in the runner's image, and
// nowhere else between two calls of Run. A Runner belongs to one goroutine.
type Runner struct {
	// Compiled and Interpreted count the warp instructions that ran, by who executed them.
	Compiled, Interpreted uint64
	// Turns lists, if it has a capacity, which warp ran how many instructions, in order. Run returns when it
	// is full.
	Turns []state.Turn

	code    *Code
	pages   *Pages
	image   *state.Image
	block   interp.Block // the same block in interp's form, as far as somebody asked for it
	context compile.Context
}

// Slice is how many instructions a warp runs before the next one does, unless it waits or ends.
const Slice = 4096

// NewRunner makes a runner. The launch's Local is where the local memory of this runner's blocks is; its
// Memory is what Interpret accesses.
func (x *Code) NewRunner(l *interp.Launch, pages *Pages, m *state.Image) (*Runner, error) {
	if m.Warps != l.Warps() || m.Shared != l.Shared {
		return nil, fmt.Errorf("memory for blocks of %d warps with %d bytes of shared memory: want %d and %d", m.Warps, m.Shared, l.Warps(), l.Shared)
	}
	r := &Runner{code: x, image: m}
	r.block.Launch = l
	r.block.BlockState = &interp.BlockState{Shared: m.Memory}
	r.context = compile.Context{
		Pages: pages.Address(), LocalBase: l.Local, Shared: sliceAddress(m.Memory), SharedSize: l.Shared, Grid: l.Grid,
		Loop: compile.Loop{
			Code: uint64(x.run), Sites: sliceAddress(x.table), Block: uint64(addressOf(m.Block)), Slice: Slice,
			Entry: l.Entry, Last: partial(l), Clear: x.Program.Clear, Starts: [2]uint32{x.Program.Partial, x.Program.Full},
		},
	}
	r.pages = pages
	copy(r.context.Helpers[:], x.support.helpers)
	for i, bank := range l.Banks {
		if bank.Valid {
			r.context.Banks[i] = compile.Bank{Addr: bank.Addr, Size: uint64(bank.Size)}
		}
	}
	return r, nil
}

// partial are the lanes of the last warp of a block.
func partial(l *interp.Launch) uint32 {
	if n := l.Block[0] * l.Block[1] * l.Block[2] % interp.Lanes; n != 0 {
		return 1<<n - 1
	}
	return ^uint32(0)
}

// Run goes on with the image's block, if it has one that is not done, and then with further ones that it
// takes from the work, until they cost a budget or something stops it. The cost is in warp instructions, and
// more for accesses of memory in many pages. If it returns compile.Left, the warp Image.Turn needs another
// executor for at least one instruction; the image is complete.
func (r *Runner) Run(work *state.Work, budget uint64) (spent uint64, why compile.Why) {
	loop := &r.context.Loop
	loop.Work, loop.Limit, loop.Cost, loop.Ran = uint64(addressOf(work)), budget, 0, 0
	r.listTurns()
	r.findConstants()
	for {
		r.enter()
		purego.SyscallN(r.code.support.blocks, addressOf(&r.context))
		r.finish()
		if compile.Why(loop.Why) != compile.Settle {
			break
		}
		if err := r.settle(); err != nil {
			loop.Why = uint32(compile.Left)
			break
		}
	}
	r.Compiled += loop.Ran
	if cap(r.Turns) > 0 {
		r.Turns = r.Turns[:loop.NumTurns]
	}
	return loop.Cost, compile.Why(loop.Why)
}

// findConstants finds the words of constant buffers that the code reads. It does not start without them.
func (r *Runner) findConstants() {
	for i, c := range r.code.Program.Constants {
		bank := &r.context.Banks[c.Bank&31]
		host := &r.context.Constants[i]
		*host = 0
		if c.Offset >= 0 && uint64(c.Offset)+4 <= bank.Size && (bank.Addr+uint64(c.Offset))%4 == 0 {
			if b, err := (memory{r.pages}).at(bank.Addr+uint64(c.Offset), compile.PageReadable); err == nil {
				*host = sliceAddress(b)
			}
		}
	}
}

func (r *Runner) listTurns() {
	loop := &r.context.Loop
	loop.Turns, loop.NumTurns, loop.MaxTurns = 0, 0, 0
	if n := cap(r.Turns); n > 0 {
		loop.Turns, loop.NumTurns, loop.MaxTurns = uint64(addressOf(&r.Turns[:1][0])), uint64(len(r.Turns)), uint64(n)
	}
}

// enter finds out where warps go on that another executor ran.
func (r *Runner) enter() {
	if r.image.Begun == 0 {
		return
	}
	for i := range r.image.All {
		if w := &r.image.All[i]; w.Start == state.Unknown && w.Exited != ^uint32(0) {
			w.Start = r.code.start(w)
		}
	}
}

// finish completes the control stacks, of which the code wrote lanes only.
func (r *Runner) finish() {
	for i := range r.image.All {
		w := &r.image.All[i]
		if w.Site >= uint32(len(r.code.Program.Sites)) {
			continue
		}
		site := &r.code.Program.Sites[w.Site]
		w.Depth = uint32(len(site.Stack))
		for n, e := range site.Stack {
			w.Stack[n].Kind, w.Stack[n].Target = uint32(e.Kind), e.Target
		}
	}
}

// Interpret lets package interp execute the instruction at which Run left the code. After a fault the image is
// as it was before, but for memory that lanes before the wrong one wrote.
func (r *Runner) Interpret() *interp.Fault {
	n := int(r.image.Turn)
	if n >= len(r.image.All) {
		return nil
	}
	if err := r.load(n); err != nil {
		return &interp.Fault{Cause: interp.NotImplemented, Warp: n, Lane: -1, Err: err}
	}
	b := &r.block
	b.Turn, b.Left = n, 1
	if fault := b.StepWarp(n); fault != nil {
		return fault
	}
	r.Interpreted++
	if cap(r.Turns) > len(r.Turns) {
		r.Turns = append(r.Turns, state.Turn{Warp: uint32(n), Instructions: 1})
	}
	if err := r.store(n); err != nil {
		return &interp.Fault{Cause: interp.StackOverflow, PC: b.Warps[n].PC, Block: b.ID, Warp: n, Lane: -1, Err: err}
	}
	return nil
}

// makeWarps makes room for the block in interp's form: some 8 KiB a warp, which most runners never need.
func (r *Runner) makeWarps() {
	if r.block.Warps == nil {
		r.block.Warps = make([]interp.Warp, len(r.image.All))
	}
}

// Block returns the image's block in interp's form. What is changed there does not come back.
func (r *Runner) Block() (*interp.Block, error) {
	r.makeWarps()
	for i := range r.image.All {
		if err := r.image.GetWarp(i, &r.block.Warps[i]); err != nil {
			return nil, err
		}
	}
	return &r.block, r.image.GetHeader(r.block.BlockState)
}

var errBlock = errors.New("no state of the block")

// settle lets warps go on whose barrier is complete.
func (r *Runner) settle() error {
	if _, err := r.Block(); err != nil {
		return errors.Join(errBlock, err)
	}
	r.block.Settle()
	return r.image.Put(r.block.BlockState)
}

// load gets a warp and what others need of the block's state. An instruction may end a wait of other warps,
// which then get its result.
func (r *Runner) load(n int) error {
	r.makeWarps()
	b, m := &r.block, r.image
	for i := range m.All {
		w, v := &b.Warps[i], &m.All[i]
		var err error
		if i == n || v.Wait != interp.NoBarrier && v.Quiet == 0 {
			err = m.GetWarp(i, w)
		} else {
			err = v.GetFlow(w)
		}
		if err != nil {
			return err
		}
	}
	return m.GetHeader(b.BlockState)
}

// store puts back what load got.
func (r *Runner) store(n int) error {
	b, m := &r.block, r.image
	for i := range m.All {
		w, v := &b.Warps[i], &m.All[i]
		switch {
		case i == n, v.Wait != interp.NoBarrier && v.Quiet == 0:
			if err := m.PutWarp(i, w); err != nil {
				return err
			}
		case v.Wait != int32(w.Wait):
			v.Wait = int32(w.Wait)
		}
	}
	return m.PutHeader(b.BlockState)
}
