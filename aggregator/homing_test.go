package aggregator

import (
	"bytes"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/aperture/aperturetest"
	"github.com/umbra-gpu/umbra/aggregator/card"
)

// homingCard is a fake whose pages can be moved to windows. fakeCard.mu guards the memory, too.
type homingCard struct {
	*fakeCard
	memory *aperturetest.Memory
}

func (c *homingCard) Relocate(r card.Relocation) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.Relocate(r)
}

func (c *homingCard) access(addr uint64, p []byte, do func(uint64, []byte)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr+uint64(len(p)) > uint64(len(c.memory.Bytes)) {
		return false
	}
	do(addr, p)
	return true
}

func (c *homingCard) ReadVRAM(addr uint64, p []byte) bool { return c.access(addr, p, c.memory.Read) }

func (c *homingCard) WriteVRAM(addr uint64, p []byte) bool { return c.access(addr, p, c.memory.Write) }

func (c *homingCard) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return c.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

func (c *homingCard) ScrubVRAM(addr, n uint64) error {
	if !c.WriteVRAM(addr, make([]byte, n)) {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	return nil
}
