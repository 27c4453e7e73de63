package soft

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// bindMMU binds the rows of block PMMU and the PRAMIN window.
func (c *Card) bindMMU(b *mmio.Bindings) {
	b.OnWrite("NV_PBUS_BAR0_WINDOW", stored)
	b.OnWrite("NV_PBUS_BAR1_BLOCK", func(_ int, w mmio.Write) { c.bars[0].block(w.New) })
	b.OnWrite("NV_PBUS_BAR2_BLOCK", func(_ int, w mmio.Write) { c.bars[1].block(w.New) })
	// Host writes have landed when the next access is served, so the flush is complete
	// before the driver can read its state.
	b.OnRead("NV_UFLUSH_FB_FLUSH", func(_ int, v uint32) uint32 { return v &^ 3 })
	b.OnRead("NV_PFB_PRI_MMU_CTRL", func(_ int, v uint32) uint32 {
		c.polled = true
		if c.fifo.invalidating() {
			v &^= gf100.InvalidateDone
		}
		return v
	})
	b.OnWrite("NV_PFB_PRI_MMU_INVALIDATE", func(_ int, w mmio.Write) { c.invalidate(c.regs.named(w.New)) })
	b.OnWindow("PRAMIN", mmio.Window{Read: c.readPRAMIN, Write: c.writePRAMIN})
}

// stored is the effect of a register whose value the card reads where it matters.
func stored(int, mmio.Write) {}

// named is the directory that an invalidate command means.
func (r *registers) named(command uint32) directory {
	target, addr := gf100.InvalidatedDirectory(r.invalidatePDB.Get())
	return directory{addr: addr, target: shadowpt.Target(target), all: command&gf100.InvalidateAllDirs != 0}
}

// praminAt returns what the window shows at off.
func (c *Card) praminAt(off uint32) (shadowpt.Target, uint64) {
	target, addr := gf100.PRAMINMemory(c.regs.window.Get())
	return shadowpt.Target(target), addr + uint64(off)
}

func (c *Card) readPRAMIN(off uint32, p []byte) {
	if target, addr := c.praminAt(off); !c.ReadMemory(target, addr, p) {
		fill(p)
	}
}

func (c *Card) writePRAMIN(off uint32, p []byte) {
	target, addr := c.praminAt(off)
	c.access(target, func(t shadowpt.Target) {
		var w writes
		defer w.report()
		if mem := c.memory(t, addr, len(p), anyOwner, &w); mem != nil {
			store(mem, p)
		}
	})
	c.fifo.memoryChanged(anyOwner)
}
