package compile

import "fmt"

// An access of memory has a fast way, where the lanes are side by side in one page or all at one place,
// and a slow one by a function. What is not allowed stops the code before the instruction.

// Load reads 1, 2, 4, 8 or 16 bytes at addresses of 64 bits, as words. Short ones are extended with zeros.
func (b *Builder) Load(addr *Value, size int) []*Value {
	if b.t.kernel {
		return b.threadLoad(b.globalPlace(addr), size)
	}
	fast := addr.Shape == Uniform || rows(addr, size)
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
	result(b.ways(addr, size, PageReadable, typ, func(hosts []string) []string {
		if k.Shape == Uniform {
			return b.loadOne(hosts[0], size)
		}
		return b.loadRows(hosts, addr, size)
	}, slow))
	return out
}

// Store writes words at addresses of 64 bits, or the lower bytes of one.
func (b *Builder) Store(addr *Value, size int, words []*Value) {
	if b.t.kernel {
		b.threadStore(b.globalPlace(addr), size, words)
		return
	}
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
	if rows(addr, size) && addr.Stride != 0 {
		b.ways(addr, size, PageWritable, "", func(hosts []string) []string { b.storeRows(hosts, size, values); return nil }, slow)
		return
	}
	slow()
}

// rows reports whether the lanes of the warp, or of each half of it, are side by side or at one place.
func rows(addr *Value, size int) bool {
	return addr.Shape == Affine && (addr.Stride == uint64(size) || addr.Stride == 0)
}

// pieces returns how many rows an access has, and the bytes of each.
func pieces(addr *Value, size int) (n, span int) {
	switch {
	case addr.Shape == Uniform:
		return 1, size
	case addr.even():
		return 1, size * Lanes
	case addr.Stride == 0:
		return 2, size
	}
	return 2, size * half
}

// pieceBase is the address of the first lane of a row.
func (b *Builder) pieceBase(addr *Value, n int) string {
	if n == 0 {
		return b.scalar(addr)
	}
	return b.line("add i64 %s, %s", b.scalar(addr), literal(64, addr.Step))
}

// ways emits the fast way and the slow one, and joins their results.
func (b *Builder) ways(addr *Value, size, right int, typ string, fast func(hosts []string) []string, slow func() []string) []string {
	near, far := b.label(), b.label()
	var hosts []string
	n, span := pieces(addr, size)
	for i := range n {
		base := b.pieceBase(addr, i)
		look, found := b.label(), b.label()
		if i == n-1 {
			found = near
		}
		last := b.line("add i64 %s, %d", base, span-1)
		high := b.line("lshr i64 %s, %d", base, AddressBits)
		odd := b.line("and i64 %s, %d", base, size-1)
		cross := b.line("lshr i64 %s, %d", b.line("xor i64 %s, %s", base, last), PageBits)
		wrong := b.line("or i64 %s, %s", high, b.line("or i64 %s, %s", odd, cross))
		b.do("br i1 %s, label %%%s, label %%%s", b.line("icmp eq i64 %s, 0", wrong), look, far)
		b.place(look)
		host := b.line("call i64 @page(ptr %%c, i64 %s, i64 0, i64 %d)", base, right)
		b.do("br i1 %s, label %%%s, label %%%s", b.line("icmp ne i64 %s, 0", host), found, far)
		b.place(found)
		hosts = append(hosts, b.line("inttoptr i64 %s to ptr", host))
	}
	return b.meet(typ, far, func() []string { return fast(hosts) }, slow)
}

// meet emits one way from the present place and another from far, and joins their results.
func (b *Builder) meet(typ, far string, here, there func() []string) []string {
	done, side := b.label(), b.side
	b.side = true
	p := here()
	hereEnd := b.label()
	b.do("br label %%%s", hereEnd)
	b.place(hereEnd)
	b.do("br label %%%s", done)
	b.place(far)
	q := there()
	thereEnd := b.label()
	b.do("br label %%%s", thereEnd)
	b.place(thereEnd)
	b.do("br label %%%s", done)
	b.place(done)
	b.side = side
	var out []string
	for i := range p {
		out = append(out, b.line("phi %s [ %s, %%%s ], [ %s, %%%s ]", typ, p[i], hereEnd, q[i], thereEnd))
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

// loadRows reads rows of lanes that lie in pages which can be read: also what belongs to lanes that do not
// execute the instruction.
func (b *Builder) loadRows(hosts []string, addr *Value, size int) (names []string) {
	typ, words := element(size)
	lanes := Lanes / len(hosts)
	parts := make([][]string, words)
	for _, host := range hosts {
		if addr.Stride == 0 {
			for w, v := range b.loadOne(host, size) {
				one := b.line("insertelement <%d x i32> poison, i32 %s, i32 0", lanes, v)
				parts[w] = append(parts[w], b.line("shufflevector <%[1]d x i32> %[2]s, <%[1]d x i32> poison, <%[1]d x i32> zeroinitializer", lanes, one))
			}
			continue
		}
		row := fmt.Sprintf("<%d x %s>", lanes*words, typ)
		all := b.line("load %s, ptr %s, align %d", row, host, min(size, 4))
		switch {
		case size < 4:
			parts[0] = append(parts[0], b.line("zext %s %s to <%d x i32>", row, all, lanes))
		case words == 1:
			parts[0] = append(parts[0], all)
		default:
			for w := range words {
				parts[w] = append(parts[w], b.line("shufflevector %s %s, %s poison, <%d x i32> %s", row, all, row, lanes, everyNth(lanes, words, w)))
			}
		}
	}
	for _, part := range parts {
		if len(part) == 2 {
			part[0] = b.line("shufflevector <16 x i32> %s, <16 x i32> %s, <32 x i32> %s", part[0], part[1], everyNth(Lanes, 1, 0))
		}
		names = append(names, part[0])
	}
	return names
}

// storeRows writes rows of lanes: all at once, or those of the half warps one after the other, as their lanes
// are.
func (b *Builder) storeRows(hosts []string, size int, values []string) {
	if len(hosts) == 1 {
		b.storeRow(hosts[0], size, values)
		return
	}
	typ, words := element(size)
	for h, host := range hosts {
		var part []string
		for _, v := range values {
			part = append(part, b.line("shufflevector <32 x i32> %s, <32 x i32> poison, <16 x i32> %s", v, everyNth(half, 1, h*half)))
		}
		all, row := part[0], fmt.Sprintf("<%d x %s>", half*words, typ)
		switch {
		case size < 4:
			all = b.line("trunc <16 x i32> %s to %s", all, row)
		case words == 2:
			all = b.line("shufflevector <16 x i32> %s, <16 x i32> %s, %s %s", all, part[1], rowType("i32", 1), interleavedOf(half, 2))
		case words == 4:
			low := b.line("shufflevector <16 x i32> %s, <16 x i32> %s, <32 x i32> %s", all, part[1], everyNth(32, 1, 0))
			high := b.line("shufflevector <16 x i32> %s, <16 x i32> %s, <32 x i32> %s", part[2], part[3], everyNth(32, 1, 0))
			all = b.line("shufflevector <32 x i32> %s, <32 x i32> %s, %s %s", low, high, rowType("i32", 2), interleavedOf(half, 4))
		}
		if b.lanes.all {
			b.do("store %s %s, ptr %s, align %d", row, all, host, min(size, 4))
			continue
		}
		mask := b.line("shufflevector <32 x i1> %s, <32 x i1> poison, <%d x i32> %s", b.laneVector(b.lanes.mask), half*words, indices(half*words, func(i int) int { return h*half + i/words }))
		b.maskedStore(row, fmt.Sprintf("v%d%s", half*words, typ), all, host, min(size, 4), fmt.Sprintf("<%d x i1>", half*words), mask)
	}
}

func (b *Builder) maskedStore(row, suffix, v, host string, align int, maskType, mask string) {
	b.t.intrinsic("void @llvm.masked.store.%s.p0(%s, ptr, i32, %s)", suffix, row, maskType)
	b.do("call void @llvm.masked.store.%s.p0(%s %s, ptr %s, i32 %d, %s %s)", suffix, row, v, host, align, maskType, mask)
}

// storeRow writes all lanes side by side.
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
	b.maskedStore(row, rowSuffix(typ, words), all, host, align, rowType("i1", words), b.rowMask(words))
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
