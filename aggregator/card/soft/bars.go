package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Bits of NV_PBUS_BAR1_BLOCK and NV_PBUS_BAR2_BLOCK.
const (
	blockVirtual = 1 << 31
	blockAddr    = 1<<28 - 1 // instance block >> 12
)

// barWindow is BAR1 or BAR3: a window into an address space, or into VRAM as it
// lies while no instance block is set. It is guarded by Card.mu.
type barWindow struct {
	card    *Card
	unit    faultUnit
	virtual bool
	inst    uint64
	vm      vm
}

func (w *barWindow) init(c *Card, i int) {
	w.card = c
	w.unit = [2]faultUnit{unitBAR1, unitBAR3}[i]
	w.vm.card = c
}

// block acts on a write of the window's block register.
func (w *barWindow) block(v uint32) {
	w.virtual = v&blockVirtual != 0
	w.inst = uint64(v&blockAddr) << 12
	inst := w.card.vram.slice(w.inst, gf100.InstanceSize)
	if !w.virtual || inst == nil {
		w.vm.bind(shadowpt.Space{})
		return
	}
	w.vm.bind(instanceSpace(inst))
}

func (w *barWindow) read(off uint64, p []byte) {
	w.card.pinHost()
	fault := w.each(off, p, false, func(mem, p []byte) { copy(p, mem) })
	w.card.unpinHost()
	w.report(fault)
}

func (w *barWindow) write(off uint64, p []byte) {
	w.card.pinHost()
	fault := w.each(off, p, true, func(mem, p []byte) { store(mem, p) })
	w.card.unpinHost()
	w.report(fault)
	w.card.fifo.memoryChanged()
}

// each calls f for the runs of memory behind p. Bytes behind a fault read as
// ones; the first fault is returned.
func (w *barWindow) each(off uint64, p []byte, write bool, f func(mem, p []byte)) *engine.Fault {
	if !w.virtual {
		if mem := w.card.vram.slice(off, len(p)); mem != nil {
			f(mem, p)
			return nil
		}
		fill(p)
		w.card.stats.BARFaults.Add(1)
		return nil
	}
	w.vm.sync()
	for len(p) > 0 {
		mem, fault := w.vm.Bytes(off, len(p), write)
		if fault != nil {
			if !write {
				fill(p)
			}
			w.card.stats.BARFaults.Add(1)
			return fault
		}
		f(mem, p[:len(mem)])
		p = p[len(mem):]
		off += uint64(len(mem))
	}
	return nil
}

func (w *barWindow) report(f *engine.Fault) {
	if f != nil {
		w.card.regs.mmuFault(w.unit, w.inst, *f)
		w.card.settle()
	}
}

// store writes p to mem, a naturally sized piece in one go: an engine that polls
// the dword must not see half of it.
func store(mem, p []byte) {
	switch len(p) {
	case 1:
		mem[0] = p[0]
	case 2:
		binary.LittleEndian.PutUint16(mem, binary.LittleEndian.Uint16(p))
	case 4:
		binary.LittleEndian.PutUint32(mem, binary.LittleEndian.Uint32(p))
	case 8:
		binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(p))
	default:
		copy(mem, p)
	}
}

// bindMMU binds the rows of block PMMU and the PRAMIN window.
func (c *Card) bindMMU(b *mmio.Bindings) {
	b.OnWrite("NV_PBUS_BAR0_WINDOW", func(int, mmio.Write) {})
	b.OnWrite("NV_PBUS_BAR1_BLOCK", func(_ int, w mmio.Write) { c.bars[0].block(w.New) })
	b.OnWrite("NV_PBUS_BAR2_BLOCK", func(_ int, w mmio.Write) { c.bars[1].block(w.New) })
	// Host writes have landed when the next access is served, so the flush is
	// done before anybody can ask.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, v uint32) uint32 { return v &^ 3 })
	b.OnRead("NV_PFB_PRI_MMU_CTRL", func(_ int, v uint32) uint32 {
		if !c.fifo.translationsCurrent() {
			v &^= mmuInvalidateDone
		}
		return v
	})
	b.OnWrite("NV_PFB_PRI_MMU_INVALIDATE", func(int, mmio.Write) { c.invalidate() })
	b.OnWindow("PRAMIN", mmio.Window{Read: c.readPRAMIN, Write: c.writePRAMIN})
}

const mmuInvalidateDone = 1 << 15

// invalidate makes every address space forget its translations before its next
// step. Which directory was meant does not matter: forgetting more than asked
// costs look-ups, never correctness.
func (c *Card) invalidate() {
	c.tlbGen.Add(1)
	c.stats.Invalidates.Add(1)
}

// pramin returns n bytes of the memory that the PRAMIN window shows at off.
func (c *Card) pramin(off uint32, n int, write bool) []byte {
	win := c.regs.window.Get()
	addr := uint64(win&0xffffff)<<16 + uint64(off)
	return c.memory(shadowpt.Target(win>>24&3), addr, n, write)
}

func (c *Card) readPRAMIN(off uint32, p []byte) {
	c.pinHost()
	defer c.unpinHost()
	if mem := c.pramin(off, len(p), false); mem != nil {
		copy(p, mem)
		return
	}
	fill(p)
}

func (c *Card) writePRAMIN(off uint32, p []byte) {
	c.pinHost()
	if mem := c.pramin(off, len(p), true); mem != nil {
		store(mem, p)
	}
	c.unpinHost()
	c.fifo.memoryChanged()
}
