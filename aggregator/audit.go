package aggregator

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Extents returns where the guest's memory lies on the card.
func (g *Guest) Extents() []vram.Extent { return g.extents.List() }

// Tables returns the card memory that holds the guest's shadow page tables: all that the
// aggregator keeps for the guest, except the instance blocks of its current channels, in
// which the card keeps their state.
func (g *Guest) Tables() []vram.Extent {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	var blocks []uint64
	for _, ch := range g.agg.channels {
		if ch != nil && ch.guest == g {
			blocks = append(blocks, ch.inst)
		}
	}
	slices.Sort(blocks)
	var out []vram.Extent
	add := func(from, to uint64) {
		if from < to {
			out = append(out, vram.Extent{Card: from, Size: to - from})
		}
	}
	for _, r := range g.privateRuns {
		from := r.Addr
		for _, at := range blocks {
			if at >= from && at < r.Addr+r.Size {
				add(from, at)
				from = at + gf100.InstanceSize
			}
		}
		add(from, r.Addr+r.Size)
	}
	return out
}

// BusAddress returns the card's address of address addr of the guest's own memory.
func (g *Guest) BusAddress(addr uint64) uint64 { return g.agg.bus.at(g.index, addr) }

// Fixed returns the card memory that never changes between New and Close: the tables and
// the instance block of the aggregator's BAR1.
func (a *Aggregator) Fixed() (list []vram.Extent) {
	for _, r := range a.ctl.fixed {
		list = append(list, vram.Extent{Card: r.Addr, Size: r.Size})
	}
	return list
}

// PollArea returns the card memory of the card's poll area: a page for each of its
// channels, of which only the words of USERD are ever written.
func (a *Aggregator) PollArea() vram.Extent {
	return vram.Extent{Card: a.pollArea, Size: gf100.Channels * gf100.USERDSize}
}

// Runlists returns the memory of the card's runlists.
func (a *Aggregator) Runlists() (list []vram.Extent) {
	for _, at := range a.ctl.runlists {
		list = append(list, vram.Extent{Card: at, Size: vram.PageSize})
	}
	return list
}

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
	if owner, _, ok := a.bus.of(addr, uint64(n)); t.System() && ok && owner == uint64(g.index) {
		return nil
	}
	return fmt.Errorf("aggregator: channel %d of guest %s accesses %d bytes of target %d at %#x (write %t), which do not belong to it", id, g.name, n, t, addr, write)
}

// has reports whether the access is to the guest's memory, its channel's USERD, or, for
// reads, tables built for it.
func (g *Guest) has(ch *channel, addr, n uint64, write bool) bool {
	own := []vram.Run{{Addr: ch.cardUSERD(), Size: gf100.USERDSize}}
	for _, e := range g.extents.List() {
		own = append(own, vram.Run{Addr: e.Card, Size: e.Size})
	}
	if !write {
		own = append(own, g.privateRuns...)
	}
	for n > 0 {
		i := slices.IndexFunc(own, func(r vram.Run) bool { return addr >= r.Addr && addr-r.Addr < r.Size })
		if i < 0 {
			return false
		}
		step := min(n, own[i].Size-(addr-own[i].Addr))
		addr, n = addr+step, n-step
	}
	return true
}
