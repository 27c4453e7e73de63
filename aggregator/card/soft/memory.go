package soft

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/shadowpt"
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

// ReadMemory copies len(p) bytes of VRAM or of the host's memory at addr, as an entry of a page
// table names them. It returns false if not all of them exist.
func (c *Card) ReadMemory(t shadowpt.Target, addr uint64, p []byte) (ok bool) {
	c.access(t, func(t shadowpt.Target) {
		mem := c.memory(t, addr, len(p), anyOwner, nil)
		if ok = mem != nil; ok {
			load(p, mem)
		}
	})
	return ok
}

// LookVRAM calls f with each allocated piece of the n bytes of VRAM at addr, without a
// copy. Bytes that it leaves out read as zero. f must neither keep nor change its slice.
func (c *Card) LookVRAM(addr, n uint64, f func(at uint64, p []byte)) {
	if c.vram.slice(addr, int(n)) != nil {
		c.vram.look(addr, n, f)
	}
}

// SameVRAM reports whether VRAM holds p at addr. It does not read pages that were never
// written: reading a hole would allocate it.
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
	if c.fifo.noteChange(anyOwner) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fifo.wakeWaiting(anyOwner)
	}
	return true
}

// ScrubVRAM makes n bytes at addr zero. Both are multiples of 4 KiB.
func (c *Card) ScrubVRAM(addr, n uint64) error {
	if c.vram.slice(addr, int(n)) == nil {
		return fmt.Errorf("scrub VRAM %#x+%#x: the card has %#x bytes", addr, n, c.cfg.VRAM)
	}
	return c.vram.punch(addr, n)
}
