// Package fakecard has a card for tests of drivers. It remembers its registers and its VRAM,
// and runs nothing. What a driver waits for is complete at once, unless a test holds it up.
//
// The package has no goroutines. Its one lock, Card.Mu, guards a Card.
package fakecard

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Reg returns the offset of a register, or of the first of an array, by the chip's name.
func Reg(name string) uint32 {
	for _, b := range gf100.Blocks() {
		for _, r := range b.Regs {
			if r.Name == name {
				return r.Offset
			}
		}
	}
	panic("fakecard: the chip has no register " + name)
}

// Registers of operations that take time: Card.Hold keeps them pending.
var (
	Invalidates = Reg("NV_PFB_PRI_MMU_CTRL")
	Runlists    = Reg("NV_PFIFO_ENG_RUNLIST")
	Preempts    = Reg("NV_PFIFO_PREEMPT")
)

var (
	regChannelInst = Reg("NV_PCCSR_CHANNEL_INST")
	regChannel     = Reg("NV_PCCSR_CHANNEL")
	regRunlistBase = Reg("NV_PFIFO_RUNLIST_BASE")
	regRunlist     = Reg("NV_PFIFO_RUNLIST")
	regPMCIntr     = Reg("NV_PMC_INTR")
	regFIFOIntr    = Reg("NV_PFIFO_INTR_0")
	regFaultID     = Reg("NV_PFIFO_INTR_MMU_FAULT_ID")
	regPBDMAID     = Reg("NV_PFIFO_INTR_PBDMA_ID")
	regPBDMAIntr   = Reg("NV_PPBDMA_INTR_0")
	regGraphIntr   = Reg("NV_PGRAPH_INTR")
	regEvents      = Reg("NV_PFIFO_ENG_EVENT")
	regEventStatus = Reg("NV_PFIFO_ENG_EVENT_STATUS")
	regCopyIntr    = Reg("NV_PCE_FALCON_IRQSTAT")
	regCopyClear   = Reg("NV_PCE_FALCON_IRQSCLR")
)

// channelState are the bits of NV_PCCSR_CHANNEL that only the card changes.
const channelState = gf100.ChannelBusy | gf100.ChannelStatus

// Card is the card.
type Card struct {
	Mu sync.Mutex
	*Memory
	Silent bool                // writes are not recorded
	Events []card.ChannelEvent // that the driver has not taken

	regs      map[uint32]uint32
	held      map[uint32]bool
	writes    []Write
	doorbells []Write
	host      card.Host

	// Mappings is what the card reaches by DMA. Steps is read-locked by a step of the card.
	Mappings card.Mappings
	Steps    sync.RWMutex
}

// Write is a write of a register, or of a channel's GP_PUT.
type Write struct{ Reg, V uint32 }

// New makes a card with so many bytes of VRAM.
func New(size uint64) *Card {
	return &Card{Memory: NewMemory(size), regs: make(map[uint32]uint32), held: make(map[uint32]bool)}
}

// Read32 implements card.Registers.
func (c *Card) Read32(_ int, off uint64) uint32 {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	reg := uint32(off)
	v := c.regs[reg]
	switch {
	case reg == Invalidates && !c.held[reg]:
		v |= gf100.InvalidateDone
	case reg == Runlists || reg == Preempts: // both have the same bit
		v &^= gf100.RunlistPending
		if c.held[reg] {
			v |= gf100.RunlistPending
		}
	}
	return v
}

// Write32 implements card.Registers.
func (c *Card) Write32(bar int, off uint64, v uint32) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if bar == card.BAR1 {
		if !c.Silent {
			c.doorbells = append(c.doorbells, Write{uint32(off / gf100.USERDSize), v})
		}
		return
	}
	reg := uint32(off)
	if !c.Silent {
		c.writes = append(c.writes, Write{reg, v})
	}
	switch {
	case reg == regFaultID || reg == regGraphIntr || reg == regPBDMAIntr:
		v = c.regs[reg] &^ v // acknowledged
	case reg-regEventStatus < gf100.Engines*4:
		c.regs[regEvents] &^= 1 << ((reg - regEventStatus) / 4)
	case reg == regCopyClear:
		c.regs[regCopyIntr] &^= v
	case reg-regChannel < gf100.Channels*8 && (reg-regChannel)%8 == 0:
		v = v&^channelState | c.regs[reg]&channelState
	}
	c.regs[reg] = v
	c.recompute()
}

// recompute is the interrupt tree of what tests raise.
func (c *Card) recompute() {
	c.regs[regPBDMAID] = min(c.regs[regPBDMAIntr], 1)
	c.regs[regFIFOIntr], c.regs[regPMCIntr] = 0, 0
	for _, s := range []struct{ from, to, bit uint32 }{
		{regFaultID, regFIFOIntr, gf100.IntrMMUFault}, {regPBDMAID, regFIFOIntr, gf100.IntrPBDMA}, {regEvents, regFIFOIntr, gf100.IntrEngine},
		{regFIFOIntr, regPMCIntr, 1 << 8}, {regGraphIntr, regPMCIntr, 1 << 12}, {regCopyIntr, regPMCIntr, 1 << 5},
	} {
		if c.regs[s.from] != 0 {
			c.regs[s.to] |= s.bit
		}
	}
}

// Raise sets registers and interrupts the host.
func (c *Card) Raise(regs map[uint32]uint32) {
	c.Mu.Lock()
	maps.Copy(c.regs, regs)
	c.recompute()
	h := c.host
	c.Mu.Unlock()
	h.Interrupt(card.Line{Level: true, Edge: true})
}

// do runs f with the lock.
func (c *Card) do(f func()) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	f()
}

// Set sets a register.
func (c *Card) Set(reg, v uint32) { c.do(func() { c.regs[reg] = v }) }

// Get returns what a register has.
func (c *Card) Get(reg uint32) (v uint32) {
	c.do(func() { v = c.regs[reg] })
	return v
}

// Hold keeps an operation pending, or lets it complete.
func (c *Card) Hold(reg uint32, on bool) { c.do(func() { c.held[reg] = on }) }

// HoldAll holds every operation, or none.
func (c *Card) HoldAll(on bool) {
	for _, reg := range []uint32{Invalidates, Runlists, Preempts} {
		c.Hold(reg, on)
	}
}

// Forget drops the record of writes and doorbells.
func (c *Card) Forget() { c.do(func() { c.writes, c.doorbells = nil, nil }) }

// Doorbells returns the recorded values of GP_PUT, by channel.
func (c *Card) Doorbells() (list []Write) {
	c.do(func() { list = slices.Clone(c.doorbells) })
	return list
}

// WritesTo returns the recorded writes to n bytes of registers from base on.
func (c *Card) WritesTo(base, n uint32) (list []Write) {
	c.do(func() { list = slices.Clone(c.writes) })
	return slices.DeleteFunc(list, func(w Write) bool { return w.Reg-base >= n })
}

// SetChannel sets NV_PCCSR_CHANNEL of a channel. Its state stays when the driver writes it.
func (c *Card) SetChannel(id, v uint32) { c.Set(regChannel+id*8, v) }

// Enabled reports whether a channel may run.
func (c *Card) Enabled(id uint32) bool {
	return c.Get(regChannel+uint32(id)*8)&gf100.ChannelEnabled != 0
}

// Bound returns the channel that a register write binds, and its instance block.
func Bound(bar int, off uint64, v uint32) (id uint32, inst uint64, ok bool) {
	n := uint32(off) - regChannelInst
	ok = bar == card.BAR0 && n < gf100.Channels*8 && n%8 == 0 && v&gf100.InstanceBound != 0
	return uint32(n / 8), uint64(v&gf100.InstanceAddr) << 12, ok
}

// Instance returns the address of a channel's instance block, false if it is not bound.
func (c *Card) Instance(id uint32) (uint64, bool) {
	reg := regChannelInst + uint32(id)*8
	_, inst, ok := Bound(card.BAR0, uint64(reg), c.Get(reg))
	return inst, ok
}

// Runlist returns the channels on the runlist that was written last.
func (c *Card) Runlist() (ids []uint32) {
	b := c.Bytes[uint64(c.Get(regRunlistBase))<<12:]
	for range c.Get(regRunlist) & 0xfff {
		ids = append(ids, binary.LittleEndian.Uint32(b))
		b = b[gf100.RunlistEntrySize:]
	}
	return ids
}

// VRAMSize implements card.Registers.
func (c *Card) VRAMSize() uint64 { return uint64(len(c.Bytes)) }

func (c *Card) access(addr uint64, p []byte, do func(uint64, []byte)) bool {
	fits := addr+uint64(len(p)) <= uint64(len(c.Bytes))
	if fits {
		c.do(func() { do(addr, p) })
	}
	return fits
}

// ReadVRAM implements card.Memory.
func (c *Card) ReadVRAM(addr uint64, p []byte) bool {
	return c.access(addr, p, c.Read)
}

// WriteVRAM implements card.Memory.
func (c *Card) WriteVRAM(addr uint64, p []byte) bool { return c.access(addr, p, c.Write) }

// SameVRAM implements card.Memory.
func (c *Card) SameVRAM(addr uint64, p []byte) bool {
	now := make([]byte, len(p))
	return c.ReadVRAM(addr, now) && bytes.Equal(now, p)
}

// ScrubVRAM implements card.Memory.
func (c *Card) ScrubVRAM(addr, n uint64) error {
	ok := addr%4096 == 0 && n%4096 == 0
	for zero := make([]byte, 4096); ok && n > 0; addr, n = addr+4096, n-4096 {
		ok = c.WriteVRAM(addr, zero)
	}
	if !ok {
		return fmt.Errorf("scrub %#x+%#x", addr, n)
	}
	return nil
}

// TakeEvents implements card.Registers.
func (c *Card) TakeEvents(to []card.ChannelEvent) []card.ChannelEvent {
	c.do(func() { to, c.Events = append(to, c.Events...), nil })
	return to
}

// ProgramReport implements card.Registers.
func (c *Card) ProgramReport(uint32) string { return "" }

// Relocate implements card.Relocator.
func (c *Card) Relocate(r card.Relocation) (done uint64, err error) {
	c.do(func() { done, err = c.Memory.Relocate(r) })
	return done, err
}

// MaxMappings implements card.Relocator.
func (c *Card) MaxMappings() int { return 1 << 16 }

// QuiesceChannels implements card.Relocator: nothing runs.
func (c *Card) QuiesceChannels(_ []uint32, do func()) { do() }

// AttachHost implements card.Registers.
func (c *Card) AttachHost(h card.Host) { c.do(func() { c.host = h }) }

// DetachHost implements card.Registers.
func (c *Card) DetachHost() { c.AttachHost(nil) }

// MapDMA implements card.DMA.
func (c *Card) MapDMA(addr uint64, m card.Mapping) error {
	c.Steps.Lock()
	defer c.Steps.Unlock()
	return c.Mappings.Map(addr, m)
}

// UnmapDMA implements card.DMA.
func (c *Card) UnmapDMA(addr, n uint64) {
	c.Steps.Lock()
	defer c.Steps.Unlock()
	c.Mappings.Unmap(addr, n)
}

// Reset implements card.Registers.
func (c *Card) Reset() error { return nil }
