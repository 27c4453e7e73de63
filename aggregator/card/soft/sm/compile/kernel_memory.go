package compile

import "fmt"

// Accesses of one thread. An instruction whose guard is false accesses nothing.

// threadPlace emits the checks of an access, and returns the type of its pointer and the pointer.
type threadPlace func(size int) (typ, name string)

// globalPlace is in the buffer, at an address of 64 bits.
func (b *Builder) globalPlace(addr *Value) threadPlace {
	return func(size int) (string, string) {
		at := b.line("sub i64 %s, %%low", b.scalar(addr))
		inside := b.line("icmp ule i64 %s, %s", at, b.line("sub i64 %%size, %d", size))
		odd := b.line("and i64 %s, %d", at, size-1)
		b.require(b.line("and i1 %s, %s", inside, b.line("icmp eq i64 %s, 0", odd)))
		return "ptr addrspace(1)", b.line("getelementptr i8, ptr addrspace(1) %%memory, i64 %s", at)
	}
}

// sharedPlace is in shared memory, at an address of 32 bits.
func (b *Builder) sharedPlace(addr *Value) threadPlace {
	return func(size int) (string, string) {
		at := b.line("and i32 %s, %d", b.scalar(addr), windowMask)
		inside := b.line("icmp ule i32 %s, %%shared", b.line("add i32 %s, %d", at, size))
		odd := b.line("and i32 %s, %d", at, size-1)
		b.require(b.line("and i1 %s, %s", inside, b.line("icmp eq i32 %s, 0", odd)))
		return "ptr addrspace(3)", b.line("getelementptr i8, ptr addrspace(3) @sharedMemory, i32 %s", at)
	}
}

// whereGuarded emits an access with n words of result. They are zero if the guard is false.
func (b *Builder) whereGuarded(n int, access func() []string) []string {
	if !b.lanes.guarded {
		return access()
	}
	near, far := b.label(), b.label()
	b.do("br i1 %s, label %%%s, label %%%s", b.scalar(b.lanes.guard), near, far)
	b.place(near)
	return b.meet("i32", far, access, func() (none []string) {
		for range n {
			none = append(none, "0")
		}
		return none
	})
}

// threadLoad reads 1, 2, 4, 8 or 16 bytes.
func (b *Builder) threadLoad(place threadPlace, size int) []*Value {
	k := Kind{Max: ones(uint8(8 * min(size, 4))), NaN: Bits}.normal()
	out := make([]*Value, max(1, size/4))
	for i := range out {
		out[i] = &Value{Kind: k, width: 32}
	}
	if !b.emit {
		return out
	}
	names := b.whereGuarded(len(out), func() (names []string) {
		typ, from := place(size)
		if size <= 4 {
			unit := ty(uint8(8 * size))
			v := b.line("load %s, %s %s, align %d", unit, typ, from, size)
			if size < 4 {
				v = b.line("zext %s %s to i32", unit, v)
			}
			return []string{v}
		}
		all := b.line("load <%d x i32>, %s %s, align %d", size/4, typ, from, size)
		for i := range out {
			names = append(names, b.line("extractelement <%d x i32> %s, i32 %d", size/4, all, i))
		}
		return names
	})
	for i, x := range out {
		x.s = names[i]
	}
	return out
}

// threadStore writes words, or the lower bytes of one.
func (b *Builder) threadStore(place threadPlace, size int, words []*Value) {
	values := make([]string, len(words))
	for i := range words {
		values[i] = b.scalar(b.bits(words[i]))
	}
	if !b.emit {
		return
	}
	b.whereGuarded(0, func() []string {
		typ, to := place(size)
		unit, v := ty(uint8(8*min(size, 4))), values[0]
		switch {
		case size < 4:
			v = b.line("trunc i32 %s to %s", v, unit)
		case size > 4:
			unit, v = fmt.Sprintf("<%d x i32>", size/4), "poison"
			for i := range values {
				v = b.line("insertelement %s %s, i32 %s, i32 %d", unit, v, values[i], i)
			}
		}
		b.do("store %s %s, %s %s, align %d", unit, v, typ, to, size)
		return nil
	})
}

// threadAtomic is atomic for one thread: threads of a warp come in any order.
func (b *Builder) threadAtomic(name string, addr *Value, words []*Value) *Value {
	out := &Value{Kind: Kind{Max: ones(32), NaN: Bits}, width: 32}
	values := make([]string, len(words))
	for i := range words {
		values[i] = b.scalar(b.bits(words[i]))
	}
	if !b.emit {
		return out
	}
	out.s = b.whereGuarded(1, func() []string {
		typ, at := b.globalPlace(addr)(4)
		if name == "swap" {
			both := b.line("cmpxchg %s %s, i32 %s, i32 %s monotonic monotonic", typ, at, values[0], values[1])
			return []string{b.line("extractvalue { i32, i1 } %s, 0", both)}
		}
		return []string{b.line("atomicrmw %s %s %s, i32 %s monotonic", name, typ, at, values[0])}
	})[0]
	return out
}

// threadConstants are words of a constant buffer at a place that is known.
func (b *Builder) threadConstants(bank uint8, at *Value, size int) (out []*Value) {
	if !at.constant() || at.Min%uint64(size) != 0 {
		b.Refuse("constants at any place")
		at = b.Const(0)
	}
	for i := range max(1, size/4) {
		v := b.Bank(bank, int64(at.Min&^3)+int64(4*i))
		if size < 4 {
			v = b.And(b.Shr(v, b.Const(uint32(at.Min&3*8))), b.Const(1<<(8*size)-1))
		}
		out = append(out, v)
	}
	return out
}
