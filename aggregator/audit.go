package aggregator

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Audit returns an error if an access that the card makes for its channel id leaves what
// belongs to the channel's owner: the owner's memory and, for reads, the tables built for
// it. Cards that can report their accesses use it to check the isolation that other code
// enforces; Audit itself prevents nothing.
func (a *Aggregator) Audit(id uint8, t shadowpt.Target, addr uint64, n int, write bool) error {
	g, ch := a.owner(id)
	if ch == nil {
		return fmt.Errorf("aggregator: channel %d, which has no owner, accesses %d bytes of target %d at %#x", id, n, t, addr)
	}
	if t == shadowpt.VRAM && g.has(ch, addr, uint64(n), write) {
		return nil
	}
	if owner, _, ok := a.bus.Of(addr, uint64(n)); t.System() && ok && owner == uint64(g.index) {
		return nil
	}
	return fmt.Errorf("aggregator: channel %d of guest %s accesses %d bytes of target %d at %#x (write %t), which do not belong to it", id, g.name, n, t, addr, write)
}

// owner returns the channel with the card's number id, and its guest.
func (a *Aggregator) owner(id uint8) (*Guest, card.Channel) {
	for _, g := range a.everybody() {
		for _, ch := range g.channels.CardChannels() {
			if ch.ID() == id {
				return g, ch
			}
		}
	}
	return nil, nil
}

// has reports whether the access is to the guest's memory, its channel's USERD, or, for
// reads, what the card keeps for the guest.
func (g *Guest) has(ch card.Channel, addr, n uint64, write bool) bool {
	ours := []card.Run{ch.USERD()}
	for _, e := range g.Extents() {
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
