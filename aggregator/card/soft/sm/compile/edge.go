package compile

import (
	"reflect"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
)

// running are the lanes that go to a block: all, or those of a mask.
type running struct {
	full bool
	mask string
}

func some(mask string) running { return running{mask: mask} }

// here are the lanes of the block.
func (b *Builder) here() running { return running{b.block.full, b.active} }

// jump goes to another block. Every loop has an edge that does not go forward: such edges check the budget.
func (b *Builder) jump(pc uint32, stack []Entry, to running) {
	b.side = true
	if !to.full {
		b.do("store i32 %s, ptr %%active", to.mask)
	}
	b.spend(b.index + 1)
	k := b.t.block(pc, stack, to.full)
	if k == nil {
		b.t.count("more blocks than the bound")
		b.t.incomplete, b.block.open = true, true
		b.leaveAt(NotCompiled, pc, stack, to, b.t.read, slotSet{})
		return
	}
	b.block.next = append(b.block.next, k)
	live := k.start.or(k.parked)
	if pc > b.in.PC || b.t.kernel {
		b.pass(k, live)
		return
	}
	b.t.startAt(k)
	spent, budget := b.line("load i64, ptr %%spent"), b.fromContext("i64", "Budget", 0)
	b.choose(b.line("icmp ult i64 %s, %s", spent, budget), func() { b.pass(k, live) }, func() {
		b.leaveAt(OutOfBudget, pc, stack, to, k.start, k.parked)
		b.t.resumeAt(k)
	})
}

// pass hands the slots to a block: their kinds in the analysis, their values in the emission.
func (b *Builder) pass(k *block, live slotSet) {
	if !b.emit {
		b.t.flow(k, live, func(i Slot) *Value { return b.refined(b.slot(i)) })
		return
	}
	for i := range Slot(Slots) {
		if !live.has(i) {
			continue
		}
		if i < Registers && k.wide[i/2].ok {
			if i%2 == 0 {
				b.passWide(i, k.wide[i/2])
			}
			continue
		}
		from, to := b.block.entry[i], k.entry[i]
		wasWide := i < Registers && b.block.wide[i/2].ok
		if !wasWide && !b.dirty.has(i) && from.Shape == to.Shape && from.constant() == to.constant() && (from.NaN == to.NaN || from.NaN != Lazy) {
			continue // it is there already
		}
		x := b.slot(i)
		if !fits(x.Kind, to) {
			b.t.inconsistent = true
			continue
		}
		b.write(i, x, to)
	}
	b.do("br label %%%s", k.label())
}

// passWide hands two registers to a block as one number.
func (b *Builder) passWide(low Slot, to wideKind) {
	w := wideOf(b.slot(low), b.slot(low+1))
	if w == nil || !fits(w.Kind, to.Kind) {
		b.t.inconsistent = true
		return
	}
	if to.constant() || b.block.wide[low/2] == to && !b.dirty.has(low) && !b.dirty.has(low+1) {
		return
	}
	b.do("store i64 %s, ptr %s", b.scalar(w), b.at('w', int(low)))
}

// fits reports whether a value can have the form of a kind.
func fits(x, to Kind) bool {
	switch {
	case to.constant():
		return x.constant() && x.Min == to.Min
	case to.Shape == Uniform:
		return x.Shape == Uniform
	case to.Shape == Affine:
		return x.Shape == Affine && x.Stride == to.Stride && x.Step == to.Step
	}
	return true
}

// spend counts instructions of the block.
func (b *Builder) spend(n int) {
	if n > 0 && !b.t.kernel {
		spent := b.line("load i64, ptr %%spent")
		b.do("store i64 %s, ptr %%spent", b.line("add i64 %s, %d", spent, n))
	}
}

// stop leaves the code before the instruction at pc.
func (b *Builder) stop(code Code, pc uint32) {
	b.side = true
	b.spend(b.index)
	b.leaveAt(code, pc, b.stack, b.here(), b.block.liveBefore(b.index), b.block.parked)
}

// leaves is stop at an instruction behind which the way is not known.
func (b *Builder) leaves(in *Instruction) {
	b.t.incomplete, b.block.open = true, true
	b.readsAll()
	b.stop(NotCompiled, in.PC)
}

func (b *Builder) readsAll() { b.block.at(b.index).reads = b.t.read }

// callOut lets another executor execute one instruction, and goes on behind it.
func (b *Builder) callOut(in *Instruction, code Code, name string) {
	if name != "" {
		b.t.count(name)
	}
	if in.Reads == nil {
		b.readsAll()
	}
	u := b.block.at(b.index)
	u.reads = u.reads.or(setOf(in.Reads))
	b.stop(code, in.PC)
	changed := allSlots
	if in.Writes != nil {
		changed = setOf(in.Writes)
	}
	k := b.t.block(in.Next, b.stack, b.block.full)
	if k == nil {
		b.t.incomplete, b.block.open = true, true
		return
	}
	b.block.next = append(b.block.next, k)
	b.t.startAt(k)
	b.t.resumeAt(k)
	if b.emit && code == AtBarrier {
		site := &b.t.sites[len(b.t.sites)-1]
		site.After, site.Barrier, site.Quiet = in.Next, in.Barrier, in.Quiet && in.Guard.Always
	}
	if !b.emit {
		b.t.flow(k, k.start.or(k.parked), func(i Slot) *Value {
			if changed.has(i) {
				return b.t.unknown(i)
			}
			return b.slot(i)
		})
	}
}

// end stops a warp none of whose lanes can go on.
func (b *Builder) end(pc uint32) {
	b.spend(b.index + 1)
	b.leaveAt(Done, pc, nil, running{mask: "0"}, slotSet{}, slotSet{})
}

// leaveAt writes the state of the warp, and returns. Slots may be live in active lanes, or parked: in lanes
// that wait.
func (b *Builder) leaveAt(code Code, pc uint32, stack []Entry, to running, live, parked slotSet) {
	if !b.emit {
		return
	}
	if b.t.kernel {
		b.endThread(code, pc)
		return
	}
	mask := to.mask
	if to.full {
		mask = "-1"
	}
	b.toWarp("i32", mask, "Active", 0)
	b.toWarp("i32", b.line("load i32, ptr %%exited"), "Exited", 0)
	b.toContext("i64", b.line("load i64, ptr %%spent"), "Spent", 0)
	for i := range stack {
		b.toWarp("i32", b.line("load i32, ptr %s", b.at('k', int(i))), "Stack", stackLanes(i))
	}
	site := Site{Code: code, PC: pc, After: pc, Next: -1, Stack: stack}
	for i := range Slot(Slots) {
		if i == Predicates-1+FirstPred || !live.or(parked).has(i) {
			continue
		}
		if live.has(i) {
			site.Live = append(site.Live, i)
		}
		x := b.bits(b.slot(i))
		switch {
		case i >= FirstFlag:
			b.toWarp("i32", b.maskOf(x), "Flags", 4*int(i-FirstFlag))
		case i >= FirstPred:
			b.toWarp("i32", b.maskOf(x), "Preds", 4*int(i-FirstPred))
		default:
			b.toWarp("<32 x i32>", b.vector(x), "Regs", 4*Lanes*int(i))
		}
	}
	b.toWarp("i32", literal(32, uint64(len(b.t.sites))), "Site", 0)
	b.t.sites = append(b.t.sites, site)
	b.do("ret void")
}

// stackLanes is where the lanes of an entry are in state.Warp's stack.
func stackLanes(i int) int {
	return i*int(reflect.TypeFor[state.Entry]().Size()) + int(state.Layout[state.Entry]("Lanes"))
}

// toWarp stores in a field of the warp, fromWarp loads one.
func (b *Builder) toWarp(typ, name, field string, offset int) {
	b.do("store %s %s, ptr %s, align 4", typ, name, b.warpField(field, offset))
}

func (b *Builder) fromWarp(typ, field string, offset int) string {
	return b.line("load %s, ptr %s, align 4", typ, b.warpField(field, offset))
}

func (b *Builder) warpField(field string, offset int) string {
	return b.line("getelementptr i8, ptr %%w, i64 %d", int(state.Layout[state.Warp](field))+offset)
}

// toContext stores in a field of the context.
func (b *Builder) toContext(typ, name, field string, offset int) {
	at := b.line("getelementptr i8, ptr %%c, i64 %d", int(offsetOf(field))+offset)
	b.do("store %s %s, ptr %s, align 4", typ, name, at)
}

// fromContext loads a field of the context.
func (b *Builder) fromContext(typ, field string, offset int) string {
	at := b.line("getelementptr i8, ptr %%c, i64 %d", int(offsetOf(field))+offset)
	return b.line("load %s, ptr %s, align 4", typ, at)
}
