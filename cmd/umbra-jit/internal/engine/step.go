package engine

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Run executes a warp of a block until its budget of instructions is spent, or it waits or ends. It
// returns the instructions, and the place where compiled code stopped last, if any ran. The warp must be
// able to run.
func (x *Code) Run(b *interp.Block, n int, budget uint64) (spent uint64, last *compile.Site, fault *interp.Fault) {
	w := &b.Warps[n]
	for spent < budget && w.Runs() {
		if at := x.start(w); at >= 0 {
			if site, did := x.enter(b, n, at, budget-spent); site != nil {
				spent += did
				x.Compiled += did
				last = site
				if site.Code == compile.Done || site.Code == compile.OutOfBudget {
					if w.Done() {
						b.Settle()
					}
					continue
				}
			}
		}
		b.Turn, b.Left = n, 1
		spent++
		x.Interpreted++
		if f := b.StepWarp(n); f != nil {
			return spent, last, f
		}
	}
	return spent, last, nil
}

// enter runs compiled code. It returns no site if the code did not start.
func (x *Code) enter(b *interp.Block, n, at int, budget uint64) (*compile.Site, uint64) {
	c, w, l := &x.context, &b.Warps[n], b.Launch
	c.Regs, c.Preds = w.Regs, w.Preds
	c.Flags = [4]uint32{w.Flags.Zero, w.Flags.Sign, w.Flags.Carry, w.Flags.Overflow}
	c.Active, c.Exited = w.Active, w.Exited
	for i := range w.Stack {
		c.Stack[i] = w.Stack[i].Lanes
	}
	c.Site, c.Warp, c.Block = uint32(at), uint32(n), b.ID
	c.Shared, c.SharedSize = sliceAddress(b.Shared), uint32(len(b.Shared))
	c.Pages, c.LocalBase = x.pages.Address(), l.Local
	c.Budget, c.Spent = budget, 0
	for i, bank := range l.Banks {
		c.Banks[i] = compile.Bank{}
		if bank.Valid {
			c.Banks[i] = compile.Bank{Addr: bank.Addr, Size: uint64(bank.Size)}
		}
	}
	x.call()
	if c.Site >= uint32(len(x.Program.Sites)) {
		return nil, 0
	}
	site := &x.Program.Sites[c.Site]
	w.Regs, w.Preds = c.Regs, c.Preds
	w.Flags = interp.Flags{Zero: c.Flags[0], Sign: c.Flags[1], Carry: c.Flags[2], Overflow: c.Flags[3]}
	w.PC, w.Active, w.Exited = site.PC, c.Active, c.Exited
	w.Stack = w.Stack[:0]
	for i, e := range site.Stack {
		w.Stack = append(w.Stack, interp.Entry{Kind: interp.EntryKind(e.Kind), Target: e.Target, Lanes: c.Stack[i]})
	}
	b.Clock += c.Spent
	return site, c.Spent
}
