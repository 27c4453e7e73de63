package soft

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// bindMMU binds the rows of block PMMU and the PRAMIN window.
func (c *Card) bindMMU(b *mmio.Bindings) {
	b.OnWrite("NV_PBUS_BAR0_WINDOW", func(int, mmio.Write) { c.showPRAMIN() })
	b.OnWrite("NV_PBUS_BAR1_BLOCK", func(_ int, w mmio.Write) { c.bars[0].block(w.New) })
	b.OnWrite("NV_PBUS_BAR2_BLOCK", func(_ int, w mmio.Write) { c.bars[1].block(w.New) })
	// Host writes have landed when the next access is served, so the flush is
	// done before anybody can ask.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, v uint32) uint32 { return v &^ 3 })
	b.OnRead("NV_PFB_PRI_MMU_CTRL", func(_ int, v uint32) uint32 {
		if !c.fifo.translationsCurrent(c.asked, nil) {
			v &^= gf100.InvalidateDone
		}
		return v
	})
	b.OnWrite("NV_PFB_PRI_MMU_INVALIDATE", func(_ int, w mmio.Write) {
		c.asked = c.invalidate()
		c.showAgain(w.New)
	})
	b.OnWindow("PRAMIN", mmio.Window{Read: c.readPRAMIN, Write: c.writePRAMIN})
}

// invalidate makes every address space forget its translations before its next
// step, and returns the number of the invalidate. Which directory was meant does
// not matter: forgetting more than asked costs look-ups, never correctness.
func (c *Card) invalidate() uint64 {
	c.stats.Invalidates.Add(1)
	return c.tlbGen.Add(1)
}

// Where PRAMIN lies in BAR0.
const (
	praminBase = 0x700000
	praminEnd  = 0x800000
)

// inPRAMIN reports whether an access of n bytes stays in the PRAMIN window: it
// then moves memory, and no register.
func inPRAMIN(off uint64, n int) bool { return off >= praminBase && off+uint64(n) <= praminEnd }

// praminAt returns what the window shows at off.
func (c *Card) praminAt(off uint32) (shadowpt.Target, uint64) {
	win := c.regs.window.Get()
	return shadowpt.Target(win >> 24 & 3), uint64(win&0xffffff)<<16 + uint64(off)
}

func (c *Card) readPRAMIN(off uint32, p []byte) {
	target, addr := c.praminAt(off)
	c.access(target, func(t shadowpt.Target) {
		if mem := c.memory(t, addr, len(p), false); mem != nil {
			load(p, mem)
			return
		}
		fill(p)
	})
}

func (c *Card) writePRAMIN(off uint32, p []byte) {
	target, addr := c.praminAt(off)
	c.access(target, func(t shadowpt.Target) {
		if mem := c.memory(t, addr, len(p), true); mem != nil {
			store(mem, p)
		}
	})
	c.fifo.memoryChanged()
}
