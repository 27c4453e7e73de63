package fifo

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// ByNumber returns the guest's channel with the card's number id, nil if there is none. No lock is
// needed.
func (f *FIFO) ByNumber(id uint8) card.Channel {
	for _, ch := range f.CardChannels() {
		if ch.ID() == id {
			return ch
		}
	}
	return nil
}

// Owns reports whether n bytes of VRAM at addr are the guest's memory, the USERD of its channel
// ch or, for reads, what the card keeps for the guest.
func (f *FIFO) Owns(ch card.Channel, addr, n uint64, write bool) bool {
	ours := []card.Run{ch.USERD()}
	for _, e := range f.cfg.Mem.Extents() {
		ours = append(ours, card.Run{Addr: e.Card, Size: e.Size})
	}
	if !write {
		ours = append(ours, f.cfg.Share.Memory()...)
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
