package compile

// Atomic changes words of 32 bits in memory at once for all, lane after lane, and returns what they were.
// The operation is one of atomicrmw of IR.
func (b *Builder) Atomic(op string, addr, v *Value) *Value { return b.atomic(op, addr, v) }

// AtomicSwap writes a new value where memory has the one that is wanted.
func (b *Builder) AtomicSwap(addr, want, v *Value) *Value { return b.atomic("swap", addr, want, v) }

func (b *Builder) atomic(name string, addr *Value, words ...*Value) *Value {
	if b.t.kernel {
		return b.threadAtomic(name, addr, words)
	}
	out := &Value{Kind: anyKind(32), width: 32}
	if !b.emit {
		return out
	}
	b.toContext("<32 x i64>", b.vector(addr), "Addr", 0)
	for i, v := range words {
		b.toContext("<32 x i32>", b.vector(b.bits(v)), "Data", 4*Lanes*i)
	}
	b.helper(name + "4")
	out.v = b.fromContext("<32 x i32>", "Data", 0)
	return out
}
