package compile

// LoadLocal reads local memory at addresses of 32 bits, StoreLocal writes it.
func (b *Builder) LoadLocal(addr *Value, size int) []*Value { return b.Load(b.local(addr, size), size) }

// StoreLocal writes.
func (b *Builder) StoreLocal(addr *Value, size int, words []*Value) {
	b.Store(b.local(addr, size), size, words)
}

// local returns where the local memory of the threads is kept: thread after thread, and of each the part at
// the end of its addresses behind the part at their start.
func (b *Builder) local(addr *Value, size int) *Value {
	if b.t.kernel {
		b.Refuse("local memory")
		return b.Const64(0)
	}
	pos, neg := b.t.options.LocalPos, b.t.options.LocalNeg
	stride := (uint64(pos) + uint64(neg) + 15) &^ 15
	at := b.And(addr, b.Const(windowMask))
	high := b.Compare("uge", at, b.Const(windowMask+1-neg))
	place := b.Select(high, b.Add(b.Sub(at, b.Const(windowMask+1-neg)), b.Const(pos)), at)
	inside := b.One(high, b.Compare("ule", b.Add(at, b.Const(uint32(size))), b.Const(pos)))
	inside = b.Both(inside, b.Compare("ule", b.Extend(b.Add(place, b.Const(uint32(size))), false), b.Const64(uint64(pos)+uint64(neg))))
	inside = b.Both(inside, b.Compare("eq", b.And(addr, b.Const(uint32(size-1))), b.Const(0)))
	if b.emit {
		b.requireLanes(inside)
	}
	base := &Value{Kind: Kind{Max: ones(64), NaN: Bits}, width: 64}
	base.s = b.fromContext("i64", "LocalBase", 0)
	own := b.Mul(b.Extend(b.Thread(), false), b.Const64(stride))
	return b.Add(b.Add(base, own), b.Extend(place, false))
}

// LoadBank reads a constant buffer at offsets of 32 bits.
func (b *Builder) LoadBank(bank uint8, at *Value, size int) (out []*Value) {
	if b.t.kernel {
		return b.threadConstants(bank, at, size)
	}
	limit := &Value{Kind: Kind{Max: ones(64), NaN: Bits}, width: 64}
	base := &Value{Kind: Kind{Max: ones(64), NaN: Bits}, width: 64}
	limit.s = b.fromContext("i64", "Banks", 16*int(bank&31)+8)
	base.s = b.fromContext("i64", "Banks", 16*int(bank&31))
	offset := b.Extend(at, false)
	inside := b.Compare("ule", b.Add(offset, b.Const64(uint64(size))), limit)
	unit := min(size, 4)
	inside = b.Both(inside, b.Compare("eq", b.And(at, b.Const(uint32(unit-1))), b.Const(0)))
	if b.emit {
		b.requireLanes(inside)
	}
	addr := b.Add(base, offset)
	for i := range max(1, size/4) {
		out = append(out, b.Load(b.Add(addr, b.Const64(uint64(4*i))), unit)...)
	}
	return out
}
