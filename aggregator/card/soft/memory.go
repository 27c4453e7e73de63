package soft

import (
	"bytes"
	"fmt"
)

// ReadVRAM copies len(p) bytes of the card's memory at addr, and returns false
// if not all of them exist.
func (c *Card) ReadVRAM(addr uint64, p []byte) bool {
	mem := c.vram.slice(addr, len(p))
	if mem == nil {
		return false
	}
	load(p, mem)
	return true
}

// LookVRAM calls f with each piece of n bytes of the card's memory at addr that takes
// memory at all, as it lies there: what is left out reads as zeros. It is for who has
// to look at everything; f must neither keep nor change what it gets.
func (c *Card) LookVRAM(addr, n uint64, f func(at uint64, p []byte)) {
	if c.vram.slice(addr, int(n)) != nil {
		c.vram.look(addr, n, f)
	}
}

// SameVRAM reports whether the card's memory holds p at addr. Most of what is looked at is
// empty, and was never written: to compare that with zeros would make memory of it.
func (c *Card) SameVRAM(addr uint64, p []byte) bool {
	mem := c.vram.slice(addr, len(p))
	if mem == nil {
		return false
	}
	page := addr / pageSize
	if len(p) == pageSize && addr%pageSize == 0 && c.vram.isNew(page) && zero(p) && c.vram.empty(page) {
		return true
	}
	return bytes.Equal(mem, p)
}

// zero reports whether p is zeros: each byte is like the one before it.
func zero(p []byte) bool { return p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1]) }

// WriteVRAM copies p to the card's memory at addr, and returns false if not all
// of it fits.
func (c *Card) WriteVRAM(addr uint64, p []byte) bool {
	mem := c.vram.slice(addr, len(p))
	if mem == nil {
		return false
	}
	store(mem, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fifo.memoryChanged()
	return true
}

// ScrubVRAM makes n bytes at addr zero. Both are multiples of 4 KiB.
func (c *Card) ScrubVRAM(addr, n uint64) error {
	if c.vram.slice(addr, int(n)) == nil {
		return fmt.Errorf("scrub VRAM %#x+%#x: the card has %#x bytes", addr, n, c.cfg.VRAM)
	}
	return c.vram.punch(addr, n)
}
