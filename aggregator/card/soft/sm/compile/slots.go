package compile

// Registers, predicates and flags live in memory of the function between blocks, in the form that their
// kind has: a scalar, or a vector. LLVM makes values of them.

// slot returns the value of a slot.
func (b *Builder) slot(i Slot) *Value {
	if x := b.slots[i]; x != nil {
		return x
	}
	if i < Registers && b.block.wide[i/2].ok {
		return b.wideSlot(i)
	}
	k := b.block.entry[i]
	x := &Value{Kind: k, width: slotWidth(i)}
	switch {
	case k.constant():
	case k.Shape == Vector && i.boolean():
		x.mask = b.line("load i32, ptr %s", b.at('v', int(i)))
	case k.Shape == Vector:
		x.v = b.line("load <32 x i32>, ptr %s", b.at('v', int(i)))
	default:
		x.s = b.line("load %s, ptr %s", ty(x.width), b.at('s', int(i)))
	}
	if !b.side {
		b.slots[i] = x
	}
	return x
}

// wideSlot is a half of two registers that are one number.
func (b *Builder) wideSlot(i Slot) *Value {
	n := i &^ 1
	w := &Value{Kind: b.block.wide[i/2].Kind, width: 64}
	if other := b.slots[i^1]; other != nil && !b.dirty.has(i^1) {
		w = other.wide
	} else if !w.constant() {
		w.s = b.line("load i64, ptr %s", b.at('w', int(n)))
	}
	x := pick(i == n, b.Low, b.High)(w)
	x.wide, x.high = w, i != n
	if !b.side {
		b.slots[i] = x
	}
	return x
}

func slotWidth(i Slot) uint8 {
	if i.boolean() {
		return 1
	}
	return 32
}

// write stores a value in a form that a kind wants.
func (b *Builder) write(i Slot, x *Value, k Kind) {
	if k.NaN != Lazy {
		x = b.bits(x)
	}
	switch {
	case k.constant():
	case k.Shape == Vector && i.boolean():
		b.do("store i32 %s, ptr %s", b.maskOf(x), b.at('v', int(i)))
	case k.Shape == Vector:
		b.do("store <32 x i32> %s, ptr %s", b.vector(x), b.at('v', int(i)))
	default:
		b.do("store %s %s, ptr %s", ty(x.width), b.scalar(x), b.at('s', int(i)))
	}
}

// put is a write of a slot by the lanes of the instruction. It merges with what other lanes have there only
// if somebody reads that.
func (b *Builder) put(i Slot, x *Value) {
	b.block.writes(b.index, i, b.lanes.guarded)
	parked := !b.block.full && b.block.parked.has(i)
	if !b.block.liveAfter(b.index).has(i) && !parked {
		return
	}
	switch {
	case b.lanes.all, !b.lanes.guarded && !parked:
	case b.lanes.guarded && !parked:
		x = b.Select(b.lanes.guard, x, b.slot(i))
	default:
		mask := &Value{Kind: Kind{Shape: Vector, Max: 1}, width: 1, mask: b.lanes.mask}
		x = b.Select(mask, x, b.slot(i))
	}
	b.slots[i] = x
	b.dirty.add(i)
}

// Reg is a register.
func (b *Builder) Reg(r uint8) *Value {
	b.block.reads(b.index, Slot(r))
	return b.slot(Slot(r))
}

// SetReg writes a register.
func (b *Builder) SetReg(r uint8, x *Value) { b.put(Slot(r), x) }

// Pred is a predicate, or its opposite.
func (b *Builder) Pred(p uint8, not bool) *Value {
	x := b.True()
	if p != Predicates-1 {
		b.block.reads(b.index, FirstPred+Slot(p))
		x = b.slot(FirstPred + Slot(p))
	}
	if not {
		return b.Opposite(x)
	}
	return x
}

// SetPred writes a predicate.
func (b *Builder) SetPred(p uint8, x *Value) {
	if p != Predicates-1 {
		b.put(FirstPred+Slot(p), x)
	}
}

// Flag is a bit of the condition code.
func (b *Builder) Flag(f Slot) *Value {
	b.block.reads(b.index, f)
	return b.slot(f)
}

// SetFlag writes one.
func (b *Builder) SetFlag(f Slot, x *Value) { b.put(f, x) }

// Refuse leaves the instruction to another executor after all. What it emitted is not used.
func (b *Builder) Refuse(why string) { b.refuse = why }
