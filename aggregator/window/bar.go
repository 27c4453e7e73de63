package window

import (
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// bar is BAR1 or BAR3.
type bar struct {
	bars  *BARs
	kind  aperture.Kind
	tlb   shadowpt.TLB
	state BARState
}

// BARState is what a window shows.
type BARState struct {
	Virtual bool // memory through tables, else VRAM from its beginning
	On      bool // there are tables
}

// Fault is why an access through a window reached no memory.
type Fault struct {
	VA     uint64
	Write  bool
	Reason shadowpt.Reason
}

func (w *BARs) bar(i int) *bar {
	if i == card.BAR1 {
		return &w.bar1
	}
	return &w.bar3
}

// show passes the present address space to the aperture.
func (b *bar) show() {
	b.bars.maps.Block(b.kind, b.state.On, b.tlb.Space())
}

// access moves p to or from the memory at off. It returns the fault that ended it, and whether
// there was none.
func (b *bar) access(off uint64, p []byte, write bool) (f Fault, ok bool) {
	do := b.bars.mem.Read
	if write {
		do = b.bars.mem.Write
	}
	if !b.state.Virtual {
		if !do(shadowpt.VRAM, off, p) {
			return b.fault(off, p, write, shadowpt.PageNotPresent), false
		}
		return f, true
	}
	for len(p) > 0 {
		pte, end, reason, found := b.tlb.Lookup(b.bars.mem, off)
		switch {
		case !found:
			return b.fault(off, p, write, reason), false
		case write && pte.ReadOnly:
			return b.fault(off, p, write, shadowpt.PageReadOnly), false
		}
		n := min(uint64(len(p)), end-off)
		if !do(pte.Target, pte.Addr, p[:n]) {
			return b.fault(off, p, write, shadowpt.PageNotPresent), false
		}
		off += n
		p = p[n:]
	}
	return f, true
}

func (b *bar) fault(off uint64, p []byte, write bool, r shadowpt.Reason) Fault {
	b.bars.stats.WindowFaults.Add(1)
	if !write {
		fill(p)
	}
	return Fault{off, write, r}
}

func fill(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
