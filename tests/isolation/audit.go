package isolation

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// An owner is a guest with what it has of the card.
type owner struct {
	guest          *aggregator.Guest
	memory, tables []card.Run
}

// own adds an owner, before it has a channel: then all that the card keeps for it is for tables.
func (w *Ward) own(g *aggregator.Guest) {
	w.owners = append(w.owners, owner{g, runs(g), g.Tables()})
}

// watch gets every access of the card's channels. It reports those that leave what belongs to the
// channel's owner.
func (w *Ward) watch(id uint32, t shadowpt.Target, addr uint64, n int, write bool) {
	who := "nobody"
	for i := range w.owners {
		o := &w.owners[i]
		if ch := o.guest.CardChannel(id); ch != nil {
			if o.has(ch, t, addr, uint64(n), write) {
				return
			}
			who = "guest " + o.guest.Name()
		}
	}
	w.report("channel %d of %s accesses %d bytes of target %d at %#x (write %t), which do not belong to it", id, who, n, t, addr, write)
}

// has reports whether an access of channel ch stays in the owner's system memory, its VRAM, the
// channel's USERD and, for reads, the tables made for it.
func (o *owner) has(ch card.Channel, t shadowpt.Target, addr, n uint64, write bool) bool {
	if t.System() {
		const most = 1 << 40 / aggregator.MaxGuests // bytes that the card reaches of a guest's
		at := addr - o.guest.BusAddress(0)
		return at < most && n <= most-at
	}
	own := append([]card.Run{ch.USERD()}, o.memory...)
	if !write {
		own = append(own, o.tables...)
	}
	for n > 0 {
		i := slices.IndexFunc(own, func(r card.Run) bool { return addr >= r.Addr && addr-r.Addr < r.Size })
		if t != shadowpt.VRAM || i < 0 {
			return false
		}
		step := min(n, own[i].Size-(addr-own[i].Addr))
		addr, n = addr+step, n-step
	}
	return true
}
