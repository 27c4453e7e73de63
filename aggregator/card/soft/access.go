package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// BAR numbers.
const (
	BAR0 = 0 // registers
	BAR1 = 1 // VRAM through page tables; the poll area with the doorbells
	BAR3 = 3 // instance memory through page tables
	BAR5 = 5 // I/O ports: an index-data pair into BAR0, which no driver uses
)

// BARSize returns a BAR's size in bytes, 0 if the card has no such BAR.
func (c *Card) BARSize(bar int) uint64 { return c.pci.BARSize(bar) }

// ReadBAR serves a guest's read of len(p) bytes. Bytes that nothing answers
// read as ones, as on a bus.
func (c *Card) ReadBAR(bar int, off uint64, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaches(bar, off, len(p)) {
		fill(p)
		return
	}
	c.wake()
	switch bar {
	case BAR0:
		// No read changes the inputs of the interrupt tree, except for the alarm, which has
		// its own timer.
		c.sp.Read(uint32(off), p)
	case BAR1:
		c.bars[0].read(off, p)
	case BAR3:
		c.bars[1].read(off, p)
	default:
		fill(p)
	}
}

// WriteBAR serves a guest's write of len(p) bytes.
func (c *Card) WriteBAR(bar int, off uint64, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaches(bar, off, len(p)) {
		return
	}
	c.wake()
	switch bar {
	case BAR0:
		c.sp.Write(uint32(off), p)
		if !gf100.InPRAMIN(off, len(p)) {
			c.settle()
		}
	case BAR1:
		c.bars[0].write(off, p)
		c.fifo.doorbell(off, len(p))
	case BAR3:
		c.bars[1].write(off, p)
	}
}

// Read32 implements card.Registers.
func (c *Card) Read32(bar int, off uint64) uint32 {
	b := c.words.Get().(*[4]byte)
	defer c.words.Put(b)
	c.ReadBAR(bar, off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// Write32 implements card.Registers.
func (c *Card) Write32(bar int, off uint64, v uint32) {
	b := c.words.Get().(*[4]byte)
	defer c.words.Put(b)
	binary.LittleEndian.PutUint32(b[:], v)
	c.WriteBAR(bar, off, b[:])
}

// reaches reports whether an access lies in the BAR.
func (c *Card) reaches(bar int, off uint64, n int) bool {
	size := c.pci.BARSize(bar)
	return off <= size && uint64(n) <= size-off
}

// ReadConfig serves a read of the configuration space.
func (c *Card) ReadConfig(off uint32, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pci.Read(off, p)
}

// WriteConfig serves a write to the configuration space.
func (c *Card) WriteConfig(off uint32, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pci.Write(off, p)
	c.settle()
}

// ConfigSize is the size of the configuration space in bytes.
func (c *Card) ConfigSize() uint64 { return uint64(c.pci.Size()) }

func fill(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}
