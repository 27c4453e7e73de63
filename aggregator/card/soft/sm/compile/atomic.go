package compile

import "fmt"

// Atomic changes words of 32 bits in memory at once for all, lane after lane, and returns what they were.
// The operation is one of atomicrmw of IR.
func (b *Builder) Atomic(op string, addr, v *Value) *Value {
	return b.atomic(op, addr, fmt.Sprintf(`  %%d = getelementptr i32, ptr %%data, i32 %%lane2
  %%x = load i32, ptr %%d
  %%old = atomicrmw %s ptr %%host, i32 %%x seq_cst
  store i32 %%old, ptr %%d
`, op), v)
}

// AtomicSwap writes a new value where memory has the one that is wanted.
func (b *Builder) AtomicSwap(addr, want, v *Value) *Value {
	return b.atomic("swap", addr, fmt.Sprintf(`  %%d = getelementptr i32, ptr %%data, i32 %%lane2
  %%x = load i32, ptr %%d
  %%e = getelementptr [%d x i32], ptr %%data, i64 1, i32 %%lane2
  %%y = load i32, ptr %%e
  %%both = cmpxchg ptr %%host, i32 %%x, i32 %%y seq_cst seq_cst
  %%old = extractvalue { i32, i1 } %%both, 0
  store i32 %%old, ptr %%d
`, Lanes), want, v)
}

func (b *Builder) atomic(name string, addr *Value, move string, words ...*Value) *Value {
	out := &Value{Kind: anyKind(32), width: 32}
	if !b.emit {
		return out
	}
	b.toContext("<32 x i64>", b.vector(addr), "Addr", 0)
	for i, v := range words {
		b.toContext("<32 x i32>", b.vector(b.bits(v)), "Data", 4*Lanes*i)
	}
	b.helper("atomic_"+name+"_", 4, PageWritable, move)
	out.v = b.fromContext("<32 x i32>", "Data", 0)
	return out
}
