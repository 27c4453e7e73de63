package compile

import "fmt"

// An access of memory has a fast way, where the lanes are side by side in one page or all at one place,
// and a slow one by a function. What is not allowed stops the code before the instruction.

// Load reads 1, 2, 4, 8 or 16 bytes at addresses of 64 bits, as words. Short ones are extended with zeros.
func (b *Builder) Load(addr *Value, size int) []*Value {
	fast := addr.Shape == Uniform || addr.Shape == Affine && addr.Stride == uint64(size)
	k := Kind{Shape: pick(addr.Shape == Uniform, Uniform, Vector), Max: ones(uint8(8 * min(size, 4))), NaN: Bits}.normal()
	out := make([]*Value, max(1, size/4))
	for i := range out {
		out[i] = &Value{Kind: k, width: 32}
	}
	if !b.emit {
		return out
	}
	result := func(names []string) {
		for i, x := range out {
			if k.Shape == Uniform {
				x.s = names[i]
			} else {
				x.v = names[i]
			}
		}
	}
	slow := func() (names []string) {
		b.scattered("load", addr, size)
		for i := range out {
			v := b.fromContext("<32 x i32>", "Data", 4*Lanes*i)
			if k.Shape == Uniform {
				v = b.line("extractelement <32 x i32> %s, i32 %s", v, b.firstLane())
			}
			names = append(names, v)
		}
		return names
	}
	if !fast {
		result(slow())
		return out
	}
	typ := pick(k.Shape == Uniform, "i32", "<32 x i32>")
	result(b.ways(addr, size, PageReadable, typ, func(host string) []string {
		if k.Shape == Uniform {
			return b.loadOne(host, size)
		}
		return b.loadRow(host, size)
	}, slow))
	return out
}

// Store writes words at addresses of 64 bits, or the lower bytes of one.
func (b *Builder) Store(addr *Value, size int, words []*Value) {
	values := make([]string, len(words))
	for i := range words {
		values[i] = b.vector(b.bits(words[i]))
	}
	if !b.emit {
		return
	}
	slow := func() []string {
		for i := range words {
			b.toContext("<32 x i32>", values[i], "Data", 4*Lanes*i)
		}
		b.scattered("store", addr, size)
		return nil
	}
	if addr.Shape == Affine && addr.Stride == uint64(size) {
		b.ways(addr, size, PageWritable, "", func(host string) []string { b.storeRow(host, size, values); return nil }, slow)
		return
	}
	slow()
}

// ways emits the fast way and the slow one, and joins their results.
func (b *Builder) ways(addr *Value, size, right int, typ string, fast func(host string) []string, slow func() []string) []string {
	base := b.scalar(addr)
	look, near, far, done := b.label(), b.label(), b.label(), b.label()
	span := size
	if addr.Shape == Affine {
		span *= Lanes
	}
	last := b.line("add i64 %s, %d", base, span-1)
	high := b.line("lshr i64 %s, %d", base, AddressBits)
	odd := b.line("and i64 %s, %d", base, size-1)
	cross := b.line("lshr i64 %s, %d", b.line("xor i64 %s, %s", base, last), PageBits)
	wrong := b.line("or i64 %s, %s", high, b.line("or i64 %s, %s", odd, cross))
	b.do("br i1 %s, label %%%s, label %%%s", b.line("icmp eq i64 %s, 0", wrong), look, far)
	b.place(look)
	host := b.line("call i64 @page(ptr %%c, i64 %s, i64 0, i64 %d)", base, right)
	b.do("br i1 %s, label %%%s, label %%%s", b.line("icmp ne i64 %s, 0", host), near, far)
	side := b.side
	b.side = true
	b.place(near)
	p := fast(b.line("inttoptr i64 %s to ptr", host))
	nearEnd := b.label()
	b.do("br label %%%s", nearEnd)
	b.place(nearEnd)
	b.do("br label %%%s", done)
	b.place(far)
	q := slow()
	farEnd := b.label()
	b.do("br label %%%s", farEnd)
	b.place(farEnd)
	b.do("br label %%%s", done)
	b.place(done)
	b.side = side
	var out []string
	for i := range p {
		out = append(out, b.line("phi %s [ %s, %%%s ], [ %s, %%%s ]", typ, p[i], nearEnd, q[i], farEnd))
	}
	return out
}

// firstLane is one that executes the instruction, if there is one.
func (b *Builder) firstLane() string {
	return b.line("and i32 %s, 31", b.line("call i32 @llvm.cttz.i32(i32 %s, i1 false)", b.lanes.mask))
}

// loadOne reads words at one place.
func (b *Builder) loadOne(host string, size int) (names []string) {
	if size < 4 {
		typ := ty(uint8(8 * size))
		return []string{b.line("zext %s %s to i32", typ, b.line("load %s, ptr %s", typ, host))}
	}
	for i := range size / 4 {
		names = append(names, b.line("load i32, ptr %s", b.line("getelementptr i8, ptr %s, i64 %d", host, 4*i)))
	}
	return names
}

// element is what a row in memory consists of, and how many words each lane has.
func element(size int) (typ string, words int) {
	if size < 4 {
		return ty(uint8(8 * size)), 1
	}
	return "i32", size / 4
}

// loadRow reads the lanes side by side.
func (b *Builder) loadRow(host string, size int) (names []string) {
	typ, words := element(size)
	row := rowType(typ, words)
	align := min(size, 4)
	var all string
	if b.lanes.all {
		all = b.line("load %s, ptr %s, align %d", row, host, align)
	} else {
		suffix := rowSuffix(typ, words)
		b.t.intrinsic("%s @llvm.masked.load.%s.p0(ptr, i32, %s, %s)", row, suffix, rowType("i1", words), row)
		all = b.line("call %s @llvm.masked.load.%s.p0(ptr %s, i32 %d, %s %s, %s zeroinitializer)", row, suffix, host, align, rowType("i1", words), b.rowMask(words), row)
	}
	if size < 4 {
		return []string{b.line("zext %s %s to <32 x i32>", row, all)}
	}
	for w := range words {
		names = append(names, b.line("shufflevector %s %s, %s poison, <32 x i32> %s", row, all, row, everyNth(Lanes, words, w)))
	}
	return names
}

// storeRow writes them.
func (b *Builder) storeRow(host string, size int, values []string) {
	typ, words := element(size)
	row := rowType(typ, words)
	all := values[0]
	switch {
	case size < 4:
		all = b.line("trunc <32 x i32> %s to %s", all, row)
	case words == 2:
		all = b.line("shufflevector <32 x i32> %s, <32 x i32> %s, %s %s", all, values[1], rowType("i32", 2), interleaved(2))
	case words == 4:
		low := b.line("shufflevector <32 x i32> %s, <32 x i32> %s, <64 x i32> %s", all, values[1], everyNth(64, 1, 0))
		high := b.line("shufflevector <32 x i32> %s, <32 x i32> %s, <64 x i32> %s", values[2], values[3], everyNth(64, 1, 0))
		all = b.line("shufflevector <64 x i32> %s, <64 x i32> %s, %s %s", low, high, row, interleaved(4))
	}
	align := min(size, 4)
	if b.lanes.all {
		b.do("store %s %s, ptr %s, align %d", row, all, host, align)
		return
	}
	suffix := rowSuffix(typ, words)
	b.t.intrinsic("void @llvm.masked.store.%s.p0(%s, ptr, i32, %s)", suffix, row, rowType("i1", words))
	b.do("call void @llvm.masked.store.%s.p0(%s %s, ptr %s, i32 %d, %s %s)", suffix, row, all, host, align, rowType("i1", words), b.rowMask(words))
}

// scattered emits the call of the slow way.
func (b *Builder) scattered(name string, addr *Value, size int) {
	b.toContext("<32 x i64>", b.vector(addr), "Addr", 0)
	b.helper(fmt.Sprint(name, size))
}

// require stops the code before the instruction unless a condition holds.
func (b *Builder) require(ok string) {
	if !b.emit {
		return
	}
	good, bad := b.label(), b.label()
	b.do("br i1 %s, label %%%s, label %%%s", ok, good, bad)
	side := b.side
	b.place(bad)
	b.stop(Fault, b.in.PC)
	b.side = side
	b.place(good)
}
