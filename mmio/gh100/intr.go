package gh100

import "github.com/umbra-gpu/umbra/mmio"

// Leaves of the interrupt tree. Each has 32 vectors, and two share a bit of the top.
const (
	leaves    = 8
	leafBits  = 32
	topShared = 2

	// Vectors is how many there are.
	Vectors = leaves * leafBits
)

const prefixIntr = "NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_"

var eachLeaf = []mmio.Dim{{Count: leaves, Stride: 4}}

var interrupts = mmio.Block{
	Name:   "interrupts",
	Source: "NVIDIA dev_vm.h",
	Regs: []mmio.Reg{
		{Name: prefixIntr + "LEAF", Barrier: mmio.BarrierWrite, Offset: 0xb81000, Rep: eachLeaf, Access: mmio.W1C},
		{Name: prefixIntr + "LEAF_EN_SET", Offset: 0xb81200, Rep: eachLeaf, Access: mmio.W1S},
		{Name: prefixIntr + "LEAF_EN_CLEAR", Offset: 0xb81400, Rep: eachLeaf, Access: mmio.WO,
			Effect: "bits that are one disable vectors; reads which are enabled"},
		{Name: prefixIntr + "TOP", Offset: 0xb81600, Access: mmio.RO, Effect: "reads which pairs of leaves have an enabled vector"},
		{Name: prefixIntr + "TOP_EN_SET", Offset: 0xb81608, Access: mmio.W1S,
			Effect: "bits that are one enable pairs of leaves; a message follows if one is pending"},
		{Name: prefixIntr + "TOP_EN_CLEAR", Offset: 0xb81610, Access: mmio.WO, Effect: "bits that are one disable pairs; reads which are enabled"},
	},
}

// tree computes the interrupt line: a vector is pending in its leaf and enabled there, and the
// leaf's pair is enabled at the top. Its whole state is in the rows and in TreeState.
type tree struct {
	TreeState
	pending, enabled [leaves]mmio.Cell
	top              mmio.Cell
}

// TreeState is what the rows do not hold.
type TreeState struct {
	Line   bool `json:"line"`   // the line at the last Settle
	Resend bool `json:"resend"` // a pair was enabled since
}

func (t *tree) bind(b *mmio.Bindings) {
	b.On(prefixIntr+"LEAF_EN_CLEAR", mmio.Hooks{
		Read:  func(i int, _ uint32) uint32 { return t.enabled[i].Get() },
		Write: func(i int, w mmio.Write) { t.enabled[i].Put(t.enabled[i].Get() &^ w.Data) },
	})
	b.OnRead(prefixIntr+"TOP", func(int, uint32) uint32 { return t.asked() })
	b.OnWrite(prefixIntr+"TOP_EN_SET", func(_ int, w mmio.Write) { t.Resend = t.Resend || w.Data != 0 })
	b.On(prefixIntr+"TOP_EN_CLEAR", mmio.Hooks{
		Read:  func(int, uint32) uint32 { return t.top.Get() },
		Write: func(_ int, w mmio.Write) { t.top.Put(t.top.Get() &^ w.Data) },
	})
}

func (t *tree) attach(s *mmio.Space) {
	for i := range leaves {
		t.pending[i], t.enabled[i] = s.Cell(prefixIntr+"LEAF", i), s.Cell(prefixIntr+"LEAF_EN_SET", i)
	}
	t.top = s.Cell(prefixIntr+"TOP_EN_SET", 0)
}

// raise makes a vector pending.
func (t *tree) raise(vector uint32) {
	leaf := &t.pending[vector/leafBits]
	leaf.Put(leaf.Get() | 1<<(vector%leafBits))
}

// asked is NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP.
func (t *tree) asked() (top uint32) {
	for i := range leaves {
		if t.pending[i].Get()&t.enabled[i].Get() != 0 {
			top |= 1 << (i / topShared)
		}
	}
	return top
}

func (t *tree) settle() (level, edge bool) {
	level = t.asked()&t.top.Get() != 0
	edge = level && (!t.Line || t.Resend)
	t.Line, t.Resend = level, false
	return level, edge
}

// VectorGSP is the interrupt of GSP's events.
const VectorGSP = Vectors - 1

// EngineVector is the vector of the non-stall interrupts of engine n, which its fences use.
func EngineVector(n int) uint32 { return uint32(n) % VectorGSP }
