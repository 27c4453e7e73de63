// Package serve joins the parts into something that QEMU can attach to.
//
// [PassThrough] puts a card right behind a vfio-user socket: one guest, nothing
// in between. It is what every overhead is measured against.
//
// The package starts no goroutines and owns no locks but the one of PassThrough's
// interrupt routing, which is taken last and never held while waiting.
package serve

import (
	"fmt"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// PassThrough is a software card as a vfio-user device.
type PassThrough struct {
	card *soft.Card
	host *hostSide // of the client, or nil
}

// NewPassThrough returns the device of card c, which stays the caller's.
func NewPassThrough(c *soft.Card) *PassThrough { return &PassThrough{card: c} }

// barIndexes are the card's BARs; BAR1 and BAR3 are 64 bits wide and take the
// index after theirs too.
var barIndexes = [...]int{soft.BAR0, soft.BAR1, soft.BAR3, soft.BAR5}

// Regions implements vfiouser.Device.
func (d *PassThrough) Regions() []vfiouser.Region {
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	for _, bar := range barIndexes {
		if size := d.card.BARSize(bar); size != 0 {
			r[bar] = vfiouser.Region{Size: size, Flags: rw}
		}
	}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: d.card.ConfigSize(), Flags: rw}
	return r
}

// IRQs implements vfiouser.Device: INTx and one MSI vector.
func (d *PassThrough) IRQs() []vfiouser.IRQ {
	irqs := make([]vfiouser.IRQ, vfiouser.NumIRQs)
	irqs[vfiouser.IRQINTx] = vfiouser.IRQ{
		Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQMaskable | vfiouser.IRQAutomasked,
	}
	irqs[vfiouser.IRQMSI] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQNoResize}
	irqs[vfiouser.IRQErr] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQNoResize}
	irqs[vfiouser.IRQReq] = vfiouser.IRQ{Count: 1, Flags: vfiouser.IRQEventFD | vfiouser.IRQNoResize}
	return irqs
}

// ReadRegion implements vfiouser.Device.
func (d *PassThrough) ReadRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		d.card.ReadConfig(uint32(off), p)
		return nil
	}
	d.card.ReadBAR(index, off, p)
	return nil
}

// WriteRegion implements vfiouser.Device.
func (d *PassThrough) WriteRegion(index int, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		d.card.WriteConfig(uint32(off), p)
		return nil
	}
	d.card.WriteBAR(index, off, p)
	return nil
}

// Reset implements vfiouser.Device.
func (d *PassThrough) Reset() error {
	if err := d.card.Reset(); err != nil {
		return fmt.Errorf("reset the card: %w", err)
	}
	return nil
}

// Attached implements vfiouser.Device.
func (d *PassThrough) Attached(h *vfiouser.Host) {
	d.host = &hostSide{Memory: h.Memory(), host: h}
	d.card.AttachHost(d.host)
}

// Detached implements vfiouser.Device.
func (d *PassThrough) Detached() {
	d.card.DetachHost()
	d.host = nil
}

// IRQMasked implements vfiouser.IRQObserver.
func (d *PassThrough) IRQMasked(int, int) {}

// IRQUnmasked implements vfiouser.IRQObserver: a level-triggered line that is
// still high has to be signalled again.
func (d *PassThrough) IRQUnmasked(index, _ int) {
	if index == vfiouser.IRQINTx && d.host != nil {
		d.host.again()
	}
}

var _ vfiouser.IRQObserver = (*PassThrough)(nil)

// hostSide is the client as the card sees it: its memory, and its interrupt.
type hostSide struct {
	*vfiouser.Memory
	host *vfiouser.Host

	mu   sync.Mutex
	line card.Line
}

// Interrupt implements card.Host.
func (h *hostSide) Interrupt(l card.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line = l
	switch {
	case l.MSI:
		if l.Edge {
			h.host.Trigger(vfiouser.IRQMSI, 0)
		}
	case l.Level && !l.Disabled:
		h.host.Trigger(vfiouser.IRQINTx, 0)
	default:
		h.host.Clear(vfiouser.IRQINTx, 0)
	}
}

// again signals an INTx pin that is still active.
func (h *hostSide) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line.Level && !h.line.MSI && !h.line.Disabled {
		h.host.Trigger(vfiouser.IRQINTx, 0)
	}
}
