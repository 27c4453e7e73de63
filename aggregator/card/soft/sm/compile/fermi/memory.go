package fermi

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	meanings[isa.Load] = (*inst).load
	meanings[isa.Store] = (*inst).store
	meanings[isa.LoadLock] = func(x *inst) {
		if x.lockable() {
			x.load()
			x.b.SetPred(x.PDst[0], x.b.Lock(x.short()))
		}
	}
	meanings[isa.StoreUnlock] = func(x *inst) {
		if x.lockable() {
			x.store()
			x.b.Unlock(x.short())
		}
	}
	for _, op := range []isa.Op{isa.Red, isa.Atom} {
		meanings[op] = func(x *inst) { x.atomic(unsigned[:]) }
	}
	for _, op := range []isa.Op{isa.RedS, isa.AtomS} {
		meanings[op] = func(x *inst) { x.atomic(signed[:]) }
	}
	meanings[isa.Exch] = func(x *inst) { x.old(x.b.Atomic("xchg", x.address(), x.u32(1))) }
	meanings[isa.Cas] = func(x *inst) { x.old(x.b.AtomicSwap(x.address(), x.u32(1), x.u32(2))) }
}

// Operations of IR, by isa.RedOp.
var (
	unsigned = [...]string{"add", "umin", "umax", "uinc_wrap", "udec_wrap", "and", "or", "xor"}
	signed   = [...]string{"add", "min", "max"}
)

// atomic stops at a window of shared or local memory as an access does: it is wrong there.
func (x *inst) atomic(ops []string) { x.old(x.b.Atomic(ops[x.Mod[isa.RedOp]], x.address(), x.u32(1))) }

// old writes what memory was, if the form has a result.
func (x *inst) old(v value) {
	if x.Dst.Kind == isa.Reg {
		x.set(v)
	}
}

// address adds a memory operand's base and offset.
func (x *inst) address() value {
	v := &x.Src[0]
	if v.Count == 2 {
		return x.b.Add(x.pair(v.Reg), x.b.Const64(uint64(v.Value)))
	}
	return x.b.Extend(x.short(), false)
}

// short is an address of 32 bits.
func (x *inst) short() value {
	v := &x.Src[0]
	return x.b.Add(x.reg(v.Reg), x.b.Const(uint32(v.Value)))
}

// Global addresses of the windows to shared and local memory have no pages, so the access stops there and
// another executor finds out which memory it is.
func (x *inst) load() {
	var words []value
	switch x.Src[0].Space {
	case isa.Global:
		words = x.b.Load(x.address(), x.Bytes())
	case isa.Shared:
		words = x.b.LoadShared(x.short(), x.Bytes())
	case isa.Local:
		words = x.b.LoadLocal(x.short(), x.Bytes())
	case isa.ConstBank:
		words = x.b.LoadBank(x.Src[0].Bank, x.b.And(x.short(), x.b.Const(0xffff)), x.Bytes())
	default:
		x.b.Refuse("space")
		return
	}
	switch x.Mod[isa.Width] {
	case isa.S8:
		words[0] = x.narrow(words[0], 8, true)
	case isa.S16:
		words[0] = x.narrow(words[0], 16, true)
	}
	for i, v := range words {
		x.setAt(i, v)
	}
}

// lockable reports whether the form's memory can have locks.
func (x *inst) lockable() bool {
	if x.Src[0].Space == isa.Shared && x.Src[0].Count < 2 {
		return true
	}
	x.b.Refuse("lock of global memory")
	return false
}

func (x *inst) store() {
	words := make([]value, max(1, x.Bytes()/4))
	for i := range words {
		words[i] = x.b.Const(0)
		if r := x.Src[1].Reg; r != isa.Zero {
			words[i] = x.reg(r + uint8(i))
		}
	}
	switch x.Src[0].Space {
	case isa.Global:
		x.b.Store(x.address(), x.Bytes(), words)
	case isa.Shared:
		x.b.StoreShared(x.short(), x.Bytes(), words)
	case isa.Local:
		x.b.StoreLocal(x.short(), x.Bytes(), words)
	default:
		x.b.Refuse("space")
	}
}
