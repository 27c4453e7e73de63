package window

import (
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// bar is BAR1 or BAR3.
type bar struct {
	bars              *BARs
	unit              uint8 // MMU fault slot
	readBy, writtenBy uint8 // MMU client numbers
	kind              aperture.Kind
	tlb               shadowpt.TLB
	state             BARState
}

// BARState is what a window's block register says.
type BARState struct {
	Virtual bool
	On      bool   // there are tables
	Inst    uint64 // of the instance block, in the guest's VRAM
}

const (
	faultWrite = 1 << 7
	faultHub   = 1 << 6
)

func (w *BARs) bar(i int) *bar {
	if i == card.BAR1 {
		return &w.bar1
	}
	return &w.bar3
}

// block acts on a write of the bar's block register.
func (b *bar) block(v uint32) {
	b.state.Inst, b.state.Virtual = gf100.BlockMemory(v)
	block := make([]byte, gf100.InstanceSize)
	b.state.On = b.state.Virtual && b.bars.mem.Read(shadowpt.VRAM, b.state.Inst, block)
	if b.state.On {
		b.tlb.Bind(shadowpt.Fermi, structs.ReadSpace(block))
	} else {
		b.tlb.Bind(shadowpt.Fermi, shadowpt.Space{})
	}
	b.show()
}

// show passes the present address space to the aperture.
func (b *bar) show() {
	b.bars.maps.Block(b.kind, b.state.On, b.tlb.Space())
}

// access moves p to or from the memory at off. It returns the fault that ended it, and whether
// there was none.
func (b *bar) access(off uint64, p []byte, write bool) (f gf100.MMUFault, ok bool) {
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

func (b *bar) fault(off uint64, p []byte, write bool, r shadowpt.Reason) gf100.MMUFault {
	b.bars.stats.WindowFaults.Add(1)
	info := uint32(r) | faultHub
	client := b.readBy
	if write {
		info |= faultWrite
		client = b.writtenBy
	} else {
		fill(p)
	}
	return gf100.MMUFault{Unit: b.unit, Inst: b.state.Inst, VA: off, Info: info | uint32(client)<<8}
}

func fill(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
