package compile

// walk goes through the instructions of a block.
func (b *Builder) walk(k *block) {
	b.block, b.index, b.side, b.stack = k, 0, false, k.stack
	b.slots, b.dirty = [Slots]*Value{}, slotSet{}
	k.next, k.uses, k.open = nil, k.uses[:0], false
	b.place(k.label())
	b.active = ""
	if !k.full {
		b.active = b.line("load i32, ptr %%active")
	}
	for p := range k.wide { // here, so that both halves have the same number on all ways
		if k.wide[p].ok {
			b.slot(Slot(2 * p))
			b.slot(Slot(2*p + 1))
		}
	}
	for pc := k.pc; ; {
		in := b.t.decode(pc)
		if pc != k.pc && b.t.leaders[pc] {
			b.index-- // the last instruction is behind us
			b.jump(pc, b.stack, b.here())
			return
		}
		if in == nil {
			b.stop(NotCompiled, pc)
			return
		}
		b.in = in
		k.at(b.index)
		if b.instruction(in) {
			return
		}
		pc = in.Next
		b.index++
	}
}

// instruction emits one, and reports whether it ends the block.
func (b *Builder) instruction(in *Instruction) bool {
	switch {
	case in.Flow == Elsewhere, in.Mean == nil && in.Flow == Straight && in.Join:
		b.t.count(in.Name)
		b.leaves(in)
		return true
	case in.Flow == Straight && in.Mean == nil:
		b.callOut(in, NotCompiled, in.Name)
		return true
	case b.t.kernel && in.Flow == Barrier && b.threadBarrier(in):
		return false
	case b.t.kernel && (in.Flow == Barrier || in.Flow == Branch && in.Whole && !in.Guard.Always):
		b.t.count(in.Name)
		b.leaves(in)
		return true
	case in.Flow == Barrier:
		b.callOut(in, AtBarrier, "")
		return true
	case !b.hasEntry(in):
		// Wrong if any lane executes it: the other executor finds out.
		b.callOut(&Instruction{PC: in.PC, Next: in.Next, Reads: []Slot{}, Writes: []Slot{}}, NotCompiled, "")
		return true
	case in.Flow == Push && len(b.stack) >= MaxDepth:
		b.t.count("deep control stack")
		b.leaves(in)
		return true
	}
	b.lanes = b.lanesOf(in)
	never := b.lanes.guard != nil && zero(b.lanes.guard)
	if in.Flow == Straight && !never {
		if why := b.refusal(in); why != "" {
			if in.Join {
				b.t.count(in.Name)
				b.leaves(in)
			} else {
				b.callOut(in, NotCompiled, in.Name+": "+why)
			}
			return true
		}
		in.Mean(b)
	}
	switch {
	case never && in.Flow != Push:
	case in.Flow == Branch:
		b.branch(in)
		return true
	case in.Flow == Push:
		at := len(b.stack)
		b.stack = append(b.stack[:at:at], Entry{in.Kind, in.Target, b.block.full})
		if !b.t.kernel {
			b.do("store i32 %s, ptr %s", b.activeMask(), b.at('k', int(at)))
		}
	case in.Flow == Leave:
		b.leave(in)
		return true
	case in.Flow == Exit && b.t.locks: // they end with the lanes
		b.choose(b.noLocks(), func() { b.exit(in) }, func() { b.stop(NotCompiled, in.PC) })
		return true
	case in.Flow == Exit:
		b.exit(in)
		return true
	case in.Join:
		b.join(in)
		return true
	}
	return false
}

// refusal finds out why an instruction is left to another executor after all, "" if it is not. It does so
// without emitting: values would keep names of what is then not there.
func (b *Builder) refusal(in *Instruction) string {
	emit, slots, dirty := b.emit, b.slots, b.dirty
	b.emit, b.refuse = false, ""
	in.Mean(b)
	b.emit, b.slots, b.dirty = emit, slots, dirty
	return b.refuse
}

// hasEntry reports whether the stack has what the instruction needs.
func (b *Builder) hasEntry(in *Instruction) bool {
	switch {
	case in.Flow == Leave:
		return b.entryOf(in.Kind) >= 0
	case in.Join:
		n := len(b.stack)
		return n > 0 && (b.stack[n-1].Kind == JoinTo || b.stack[n-1].Kind == Diverge)
	}
	return true
}

// entryOf returns the place of the nearest entry of a kind, -1 if there is none.
func (b *Builder) entryOf(k EntryKind) int {
	for i := len(b.stack) - 1; i >= 0; i-- {
		if b.stack[i].Kind == k {
			return i
		}
	}
	return -1
}

// lanesOf finds out which lanes execute an instruction.
func (b *Builder) lanesOf(in *Instruction) lanes {
	full := b.block.full
	l := lanes{all: full, mask: b.activeMask()}
	if in.Guard.Always {
		return l
	}
	guard := b.Pred(in.Guard.Pred, in.Guard.Not)
	if guard.constant() && guard.Min != 0 {
		return l
	}
	l.all, l.guarded, l.guard = false, true, guard
	if l.mask = b.maskOf(guard); !full {
		l.mask = b.line("and i32 %s, %s", b.active, l.mask)
	}
	return l
}

// activeMask are the active lanes as 32 bits.
func (b *Builder) activeMask() string {
	if b.block.full {
		return "-1"
	}
	return b.active
}

// choose emits a branch on a condition, and what happens on both sides.
func (b *Builder) choose(cond string, yes, no func()) {
	b.side = true
	l, m := b.label(), b.label()
	b.do("br i1 %s, label %%%s, label %%%s", cond, l, m)
	b.place(l)
	yes()
	b.place(m)
	no()
}

// split goes three ways: all active lanes are in a mask, none, or some. The last gets the active lanes
// that are not.
func (b *Builder) split(all, none func(), both func(rest string)) {
	if b.lanes.guard == nil {
		all()
		return
	}
	g, take, pass := b.lanes.guard, all, none
	all = func() { b.knowing(g, true, take) }
	none = func() { b.knowing(g, false, pass) }
	if g.Shape == Uniform {
		b.choose(b.scalar(g), all, none)
		return
	}
	mask, active := b.lanes.mask, b.activeMask()
	b.choose(b.line("icmp eq i32 %s, %s", mask, active), all, func() {
		b.choose(b.line("icmp eq i32 %s, 0", mask), none, func() {
			both(b.line("xor i32 %s, %s", active, mask))
		})
	})
}

// branch takes the branch first, and leaves the other lanes on the stack.
func (b *Builder) branch(in *Instruction) {
	stack := b.stack
	taken := func() { b.jump(in.Target, stack, b.here()) }
	next := func() { b.jump(in.Next, stack, b.here()) }
	b.split(taken, next, func(rest string) {
		at := len(stack)
		switch {
		case in.Whole:
			next()
		case at > 0 && stack[at-1].Kind == Diverge && stack[at-1].Target == in.Next: // a loop that lanes leave by and by
			top := b.at('k', at-1)
			b.do("store i32 %s, ptr %s", b.line("or i32 %s, %s", rest, b.line("load i32, ptr %s", top)), top)
			b.jump(in.Target, stack, some(b.lanes.mask))
		case at >= MaxDepth:
			b.t.count("deep control stack")
			b.leaves(in)
		default:
			b.do("store i32 %s, ptr %s", rest, b.at('k', int(at)))
			b.jump(in.Target, append(stack[:at:at], Entry{Diverge, in.Next, false}), some(b.lanes.mask))
		}
	})
}

// join parks lanes until those that the nearest entry waits for are all parked or gone.
func (b *Builder) join(in *Instruction) {
	b.split(func() { b.resume(in, b.stack) }, func() { b.jump(in.Next, b.stack, b.here()) }, func(rest string) {
		b.jump(in.Next, b.stack, some(rest))
	})
}

// leave retires lanes to the nearest entry of a kind: those inside it forget them.
func (b *Builder) leave(in *Instruction) {
	at := b.entryOf(in.Kind)
	stack := b.forget(b.stack, at+1)
	b.split(func() { b.resume(in, stack) }, func() { b.jump(in.Next, b.stack, b.here()) }, func(rest string) {
		b.jump(in.Next, stack, some(rest))
	})
}

// forget takes the lanes of an instruction from entries of the stack.
func (b *Builder) forget(stack []Entry, from int) []Entry {
	if b.t.kernel { // the thread leaves them
		return stack[:from]
	}
	out := append([]Entry(nil), stack...)
	for i := from; i < len(out); i++ {
		out[i].Full = false
		old := b.line("load i32, ptr %s", b.at('k', int(i)))
		not := b.line("xor i32 %s, -1", b.lanes.mask)
		b.do("store i32 %s, ptr %s", b.line("and i32 %s, %s", old, not), b.at('k', int(i)))
	}
	return out
}

// exit ends lanes.
func (b *Builder) exit(in *Instruction) {
	if !b.t.kernel {
		old := b.line("load i32, ptr %%exited")
		b.do("store i32 %s, ptr %%exited", b.line("or i32 %s, %s", old, b.lanes.mask))
	}
	stack := b.forget(b.stack, 0)
	b.split(func() { b.resume(in, stack) }, func() { b.jump(in.Next, b.stack, b.here()) }, func(rest string) {
		b.jump(in.Next, stack, some(rest))
	})
}

// resume goes on with the nearest lanes of the stack, as no lane is active.
func (b *Builder) resume(in *Instruction, stack []Entry) {
	b.side = true
	n := len(stack)
	if n == 0 {
		b.end(in.Next)
		return
	}
	top, below := stack[n-1], stack[:n-1]
	if top.Full {
		b.jump(top.Target, below, running{full: true})
		return
	}
	mask := b.line("load i32, ptr %s", b.at('k', int(n-1)))
	b.choose(b.line("icmp eq i32 %s, 0", mask), func() { b.resume(in, below) }, func() {
		b.choose(b.line("icmp eq i32 %s, -1", mask), func() { b.jump(top.Target, below, running{full: true}) }, func() { b.jump(top.Target, below, some(mask)) })
	})
}
