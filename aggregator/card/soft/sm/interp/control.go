package interp

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	for op, f := range map[isa.Op]func(*exec){
		isa.Bra:     (*exec).branch,
		isa.Call:    func(x *exec) { x.push(ReturnTo, x.w.PC); x.w.PC = x.in.Target },
		isa.JoinAt:  func(x *exec) { x.push(JoinTo, x.in.Target) },
		isa.PreBrk:  func(x *exec) { x.push(BreakTo, x.in.Target) },
		isa.PreCont: func(x *exec) { x.push(ContTo, x.in.Target) },
		isa.PreRet:  func(x *exec) { x.push(ReturnTo, x.in.Target) },
		isa.Brk:     func(x *exec) { x.leave(BreakTo) },
		isa.Cont:    func(x *exec) { x.leave(ContTo) },
		isa.Ret:     func(x *exec) { x.leave(ReturnTo) },
		isa.Exit:    (*exec).exit,
		isa.Nop:     func(*exec) {},
		isa.PMEvent: func(*exec) {},
		isa.Bpt:     func(x *exec) { x.fail(NotImplemented, -1, 0, "breakpoint") },
	} {
		warpOps[op] = f
	}
}

// maxStack bounds a control stack. The size that a driver gives does not: real processors spill to
// memory. Mesa gives 128 entries. The bound ends programs that push for ever, and limits what the
// channels' launches take of the host: see docs/security.md.
const maxStack = 256

func (x *exec) push(k EntryKind, target uint32) {
	x.pushLanes(Entry{k, target, x.w.Active})
}

func (x *exec) pushLanes(e Entry) {
	if len(x.w.Stack) >= maxStack {
		x.fail(StackOverflow, -1, 0, "")
		return
	}
	x.w.Stack = append(x.w.Stack, e)
}

// branch takes the branch first, and leaves the other lanes on the stack. With allwarp it takes
// the branch only if no lane would stay. Lanes that leave a loop at one place wait in one entry.
func (x *exec) branch() {
	w := x.w
	rest, n := w.Active&^x.lanes, len(w.Stack)
	switch {
	case rest == 0:
		w.PC = x.in.Target
	case x.in.Mod[isa.AllWarp] != 0:
	case n > 0 && w.Stack[n-1].Kind == Diverge && w.Stack[n-1].Target == w.PC:
		w.Stack[n-1].Lanes |= rest
		w.PC, w.Active = x.in.Target, x.lanes
	default:
		x.pushLanes(Entry{Diverge, w.PC, rest})
		w.PC, w.Active = x.in.Target, x.lanes
	}
}

// join parks lanes until those that the joinat had are all parked or gone. The nearest entry
// must be of a joinat, or of a branch inside it.
func (x *exec) join() {
	n := len(x.w.Stack)
	if x.lanes == 0 {
		return
	}
	if n == 0 || x.w.Stack[n-1].Kind != JoinTo && x.w.Stack[n-1].Kind != Diverge {
		x.fail(StackMismatch, -1, 0, "no joinat for this join")
		return
	}
	x.w.Active &^= x.lanes
	x.w.resume()
}

// leave retires lanes to the nearest entry of a kind: those inside it forget them.
func (x *exec) leave(k EntryKind) {
	w := x.w
	at := len(w.Stack) - 1
	for at >= 0 && w.Stack[at].Kind != k {
		at--
	}
	if at < 0 {
		x.fail(StackMismatch, -1, 0, "no entry to leave to")
		return
	}
	for i := range w.Stack[at+1:] {
		w.Stack[at+1+i].Lanes &^= x.lanes
	}
	w.Active &^= x.lanes
	w.resume()
}

// exit ends lanes. They drop their locks.
func (x *exec) exit() {
	w := x.w
	w.Exited |= x.lanes
	w.Active &^= x.lanes
	for i := range w.Stack {
		w.Stack[i].Lanes &^= x.lanes
	}
	x.b.unlock(func(l Lock) bool { return l.Warp == x.warp && x.lanes>>l.Lane&1 != 0 })
	w.resume()
	if w.Done() {
		x.b.release()
	}
}

// resume goes on with the nearest lanes of the stack if none is active.
func (w *Warp) resume() {
	for w.Active == 0 && len(w.Stack) > 0 {
		e := w.Stack[len(w.Stack)-1]
		w.Stack = w.Stack[:len(w.Stack)-1]
		w.Active, w.PC = e.Lanes, e.Target
	}
}
