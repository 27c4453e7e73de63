package compile

// Shared memory is a piece of host memory. Addresses wrap at the size of its window.

const windowMask = 1<<24 - 1

// LoadShared reads at addresses of 32 bits.
func (b *Builder) LoadShared(addr *Value, size int) []*Value {
	if b.t.kernel {
		return b.threadLoad(b.sharedPlace(addr), size)
	}
	one := addr.Shape == Uniform && !b.lanes.guarded // under a guard there may be no lane, and no memory
	k := Kind{Shape: pick(one, Uniform, Vector), Max: ones(uint8(8 * min(size, 4))), NaN: Bits}.normal()
	out := make([]*Value, max(1, size/4))
	for i := range out {
		out[i] = &Value{Kind: k, width: 32}
	}
	if one {
		at := b.shared(addr, size)
		if !b.emit {
			return out
		}
		for i, v := range b.loadOne(b.line("getelementptr i8, ptr %s, i64 %s", b.sharedBase(), b.scalar(at)), size) {
			out[i].s = v
		}
		return out
	}
	names := b.sharedWays(addr, size, rows(addr, size), func() []string {
		return b.loadRows(b.sharedRows(addr, size), addr, size)
	}, func(at *Value) []string {
		names := make([]string, len(out))
		for i := range names {
			names[i] = b.gatherWord(at, 4*i, size)
		}
		return names
	})
	if !b.emit {
		return out
	}
	for i, x := range out {
		x.v = names[i]
	}
	return out
}

// StoreShared writes.
func (b *Builder) StoreShared(addr *Value, size int, words []*Value) {
	if b.t.kernel {
		b.threadStore(b.sharedPlace(addr), size, words)
		return
	}
	values := make([]string, len(words))
	for i := range words {
		values[i] = b.vector(b.bits(words[i]))
	}
	row := rows(addr, size) && addr.Stride != 0
	b.sharedWays(addr, size, row, func() []string {
		b.storeRows(b.sharedRows(addr, size), size, values)
		return nil
	}, func(at *Value) []string {
		for i := range values {
			b.scatterWord(at, 4*i, size, values[i])
		}
		return nil
	})
}

// sharedWays emits an access: of rows, if they lie in the memory as a whole, else lane by lane.
func (b *Builder) sharedWays(addr *Value, size int, row bool, fast func() []string, slow func(at *Value) []string) []string {
	if !b.emit {
		return nil
	}
	if !row {
		return slow(b.shared(addr, size))
	}
	good := b.rowsInside(addr, size)
	if b.lanes.all {
		b.requireLanes(good)
		return fast()
	}
	near, far := b.label(), b.label()
	b.do("br i1 %s, label %%%s, label %%%s", b.scalar(good), near, far)
	b.place(near)
	return b.meet("<32 x i32>", far, fast, func() []string { return slow(b.shared(addr, size)) })
}

func (b *Builder) sharedBase() string { return b.fromContext("ptr", "Shared", 0) }

// sharedRows are the host addresses of rows, sharedPiece the offset of one, whose address has 32 bits.
func (b *Builder) sharedRows(addr *Value, size int) (hosts []string) {
	n, _ := pieces(addr, size)
	for i := range n {
		hosts = append(hosts, b.line("getelementptr i8, ptr %s, i64 %s", b.sharedBase(), b.sharedPiece(addr, i)))
	}
	return hosts
}

func (b *Builder) sharedPiece(addr *Value, n int) string {
	base := b.scalar(addr)
	if n > 0 {
		base = b.line("add i32 %s, %s", base, literal(32, addr.Step))
	}
	return b.line("zext i32 %s to i64", base)
}

// shared checks addresses of lanes, and returns them as offsets of 64 bits.
func (b *Builder) shared(addr *Value, size int) *Value {
	at := b.Extend(b.And(addr, b.Const(windowMask)), false)
	if b.emit {
		odd := b.Extend(b.And(addr, b.Const(uint32(size-1))), false)
		b.requireLanes(b.Both(b.Compare("ule", b.Add(at, b.Const64(uint64(size))), b.sharedLimit()), b.Compare("eq", odd, b.Const64(0))))
	}
	return at
}

func (b *Builder) sharedLimit() *Value {
	limit := &Value{Kind: Kind{Max: ones(32), NaN: Bits}, width: 64}
	limit.s = b.line("zext i32 %s to i64", b.fromContext("i32", "SharedSize", 0))
	return limit
}

// rowsInside is the condition that rows lie in the memory: the last lane of a row is the farthest, and all are
// aligned if the first one is.
func (b *Builder) rowsInside(addr *Value, size int) *Value {
	n, span := pieces(addr, size)
	good := b.True()
	for i := range n {
		first := &Value{Kind: Kind{Max: ones(32), NaN: Bits}, width: 64, s: b.sharedPiece(addr, i)}
		inside := b.Compare("ule", b.Add(first, b.Const64(uint64(span))), b.sharedLimit())
		good = b.Both(good, b.Both(inside, b.Compare("eq", b.And(first, b.Const64(uint64(size-1))), b.Const64(0))))
	}
	return good
}

// requireLanes stops unless a condition holds in the lanes of the instruction.
func (b *Builder) requireLanes(ok *Value) {
	bad := b.line("and i32 %s, %s", b.lanes.mask, b.line("xor i32 %s, -1", b.maskOf(ok)))
	b.require(b.line("icmp eq i32 %s, 0", bad))
}

// gatherWord reads a word of each lane.
func (b *Builder) gatherWord(at *Value, offset, size int) string {
	typ, _ := element(size)
	row := rowType(typ, 1)
	p := b.line("getelementptr i8, ptr %s, <32 x i64> %s", b.line("getelementptr i8, ptr %s, i64 %d", b.sharedBase(), offset), b.vector(at))
	b.t.intrinsic("%s @llvm.masked.gather.%s.v32p0(<32 x ptr>, i32, <32 x i1>, %s)", row, rowSuffix(typ, 1), row)
	v := b.line("call %s @llvm.masked.gather.%s.v32p0(<32 x ptr> %s, i32 %d, <32 x i1> %s, %s zeroinitializer)", row, rowSuffix(typ, 1), p, min(size, 4), b.laneVector(b.lanes.mask), row)
	if size < 4 {
		v = b.line("zext %s %s to <32 x i32>", row, v)
	}
	return v
}

// scatterWord writes one, in the order of the lanes.
func (b *Builder) scatterWord(at *Value, offset, size int, v string) {
	typ, _ := element(size)
	row := rowType(typ, 1)
	if size < 4 {
		v = b.line("trunc <32 x i32> %s to %s", v, row)
	}
	p := b.line("getelementptr i8, ptr %s, <32 x i64> %s", b.line("getelementptr i8, ptr %s, i64 %d", b.sharedBase(), offset), b.vector(at))
	b.t.intrinsic("void @llvm.masked.scatter.%s.v32p0(%s, <32 x ptr>, i32, <32 x i1>)", rowSuffix(typ, 1), row)
	b.do("call void @llvm.masked.scatter.%s.v32p0(%s %s, <32 x ptr> %s, i32 %d, <32 x i1> %s)", rowSuffix(typ, 1), row, v, p, min(size, 4), b.laneVector(b.lanes.mask))
}
