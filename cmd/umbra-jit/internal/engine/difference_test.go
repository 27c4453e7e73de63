package engine

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// site is where the code stopped a warp last, nil if something else ran it since.
func (x *Code) site(w *state.Warp) *compile.Site {
	if w.Site < uint32(len(x.Program.Sites)) {
		return &x.Program.Sites[w.Site]
	}
	return nil
}

// difference says in words where two warps differ that stopped at a place: of the registers only those count
// that somebody reads later.
func difference(v, w *interp.Warp, at *compile.Site) string {
	if v.Done() && w.Done() {
		return ""
	}
	if v.PC != w.PC || v.Active != w.Active || v.Exited != w.Exited || v.Wait != w.Wait || len(v.Stack) != len(w.Stack) {
		return fmt.Sprintf("control: PC %#x active %#x exited %#x wait %d stack %v, not %#x %#x %#x %d %v",
			w.PC, w.Active, w.Exited, w.Wait, w.Stack, v.PC, v.Active, v.Exited, v.Wait, v.Stack)
	}
	if v.Wait != interp.NoBarrier && (v.WaitPC != w.WaitPC || v.WaitBy != w.WaitBy) {
		return fmt.Sprintf("waits at %#x with %#x, not at %#x with %#x", w.WaitPC, w.WaitBy, v.WaitPC, v.WaitBy)
	}
	for i := range v.Stack {
		if v.Stack[i] != w.Stack[i] {
			return fmt.Sprintf("stack: %v, not %v", w.Stack, v.Stack)
		}
	}
	if at == nil {
		return ""
	}
	flags := func(w *interp.Warp) [4]uint32 {
		return [4]uint32{w.Flags.Zero, w.Flags.Sign, w.Flags.Carry, w.Flags.Overflow}
	}
	for _, s := range at.Live {
		switch {
		case s >= compile.FirstFlag:
			if i := s - compile.FirstFlag; (flags(v)[i]^flags(w)[i])&v.Active != 0 {
				return fmt.Sprintf("flag %d: %#x, not %#x", i, flags(w)[i], flags(v)[i])
			}
		case s >= compile.FirstPred:
			if i := s - compile.FirstPred; (v.Preds[i]^w.Preds[i])&v.Active != 0 {
				return fmt.Sprintf("$p%d: %#x, not %#x", i, w.Preds[i], v.Preds[i])
			}
		default:
			for lane := range compile.Lanes {
				if v.Active>>lane&1 != 0 && v.Regs[s][lane] != w.Regs[s][lane] {
					return fmt.Sprintf("$r%d of lane %d: %#x, not %#x", s, lane, w.Regs[s][lane], v.Regs[s][lane])
				}
			}
		}
	}
	return ""
}
