package aggregator

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/aperture/aperturetest"
	"github.com/umbra-gpu/umbra/aggregator/card"
)

// relocatingCard is a fake whose pages can be moved to windows. fakeCard.mu guards the memory, too.
type relocatingCard struct {
	*fakeCard
	memory *aperturetest.Memory
}

func (c *relocatingCard) Relocate(r card.Relocation) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.Relocate(r)
}

func (c *relocatingCard) access(addr uint64, p []byte, do func(uint64, []byte)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr+uint64(len(p)) > uint64(len(c.memory.Bytes)) {
		return false
	}
	do(addr, p)
	return true
}

func (c *relocatingCard) ReadVRAM(addr uint64, p []byte) bool {
	return c.access(addr, p, c.memory.Read)
}

func (c *relocatingCard) WriteVRAM(addr uint64, p []byte) bool {
	return c.access(addr, p, c.memory.Write)
}

func (c *relocatingCard) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return c.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

func (c *relocatingCard) ScrubVRAM(addr, n uint64) error {
	if !c.WriteVRAM(addr, make([]byte, n)) {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	return nil
}
