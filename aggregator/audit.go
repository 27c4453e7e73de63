package aggregator

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Extents returns where the guest's memory lies on the card.
func (g *Guest) Extents() []vram.Extent { return g.extents.List() }

// Tables returns the card's memory that holds the guest's shadow page tables.
func (g *Guest) Tables() []card.Run { return g.share.Tables() }

// BusAddress returns the card's address of address addr of the guest's own memory.
func (g *Guest) BusAddress(addr uint64) uint64 { return g.dma.At(addr) }

// Audit returns an error if an access that the card makes for its channel id leaves what
// belongs to the channel's owner: the owner's memory and, for reads, the tables built for
// it. Cards that can report their accesses use it to check the isolation that other code
// enforces; Audit itself prevents nothing.
func (a *Aggregator) Audit(id uint8, t shadowpt.Target, addr uint64, n int, write bool) error {
	ch := a.owner(id)
	if ch == nil {
		return fmt.Errorf("aggregator: channel %d, which has no owner, accesses %d bytes of target %d at %#x", id, n, t, addr)
	}
	g := ch.guest
	if t == shadowpt.VRAM && g.has(ch, addr, uint64(n), write) {
		return nil
	}
	if owner, _, ok := a.bus.Of(addr, uint64(n)); t.System() && ok && owner == uint64(g.index) {
		return nil
	}
	return fmt.Errorf("aggregator: channel %d of guest %s accesses %d bytes of target %d at %#x (write %t), which do not belong to it", id, g.name, n, t, addr, write)
}

// owner returns the channel with the card's number id.
func (a *Aggregator) owner(id uint8) *boundChannel {
	for _, g := range a.everybody() {
		if ch := g.liveChannel(id); ch != nil {
			return ch
		}
	}
	return nil
}

func (g *Guest) liveChannel(id uint8) *boundChannel {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	for ch := range g.live {
		if ch.hw.ID() == id {
			return ch
		}
	}
	return nil
}

// has reports whether the access is to the guest's memory, its channel's USERD, or, for
// reads, what the card keeps for the guest.
func (g *Guest) has(ch *boundChannel, addr, n uint64, write bool) bool {
	ours := []card.Run{ch.hw.USERD()}
	for _, e := range g.extents.List() {
		ours = append(ours, card.Run{Addr: e.Card, Size: e.Size})
	}
	if !write {
		ours = append(ours, g.share.Memory()...)
	}
	for n > 0 {
		i := slices.IndexFunc(ours, func(r card.Run) bool { return addr >= r.Addr && addr-r.Addr < r.Size })
		if i < 0 {
			return false
		}
		step := min(n, ours[i].Size-(addr-ours[i].Addr))
		addr, n = addr+step, n-step
	}
	return true
}
