package aggregator

import (
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Extent is a part of a guest's memory: Size bytes that the guest sees at address Guest
// lie at address Card of the card's VRAM.
type Extent struct{ Guest, Card, Size uint64 }

// Extents returns where the guest's memory lies on the card.
func (g *Guest) Extents() (list []Extent) {
	for _, e := range g.extents.list {
		list = append(list, Extent{e.guest, e.card, e.size})
	}
	return list
}

// Tables returns the card memory that holds the guest's shadow page tables: all that the
// aggregator keeps for the guest, except the instance blocks of its current channels, in
// which the card keeps their state.
func (g *Guest) Tables() []Extent {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	var blocks []uint64
	for _, ch := range g.agg.channels {
		if ch != nil && ch.guest == g {
			blocks = append(blocks, ch.inst)
		}
	}
	slices.Sort(blocks)
	var out []run
	for _, r := range g.privateRuns {
		from := r.addr
		for _, at := range blocks {
			if at >= from && at < r.addr+r.size {
				out = append(out, run{from, at - from})
				from = at + gf100.InstanceSize
			}
		}
		out = append(out, run{from, r.addr + r.size - from})
	}
	return unseen(out)
}

// BusAddress returns the card's address of address addr of the guest's own memory.
func (g *Guest) BusAddress(addr uint64) uint64 { return g.agg.bus.at(g.index, addr) }

// Fixed returns the card memory that never changes between New and Close: the tables and
// the instance block of the aggregator's BAR1.
func (a *Aggregator) Fixed() []Extent { return unseen(a.ctl.fixed) }

// PollArea returns the card memory of the card's poll area: a page for each of its
// channels, of which only the words of USERD are ever written.
func (a *Aggregator) PollArea() Extent {
	return Extent{Card: a.pollArea, Size: gf100.Channels * gf100.USERDSize}
}

// Runlists returns the memory of the card's runlists.
func (a *Aggregator) Runlists() (list []Extent) {
	for _, at := range a.ctl.runlists {
		list = append(list, Extent{Card: at, Size: pageSize})
	}
	return list
}

func unseen(runs []run) (list []Extent) {
	for _, r := range runs {
		if r.size > 0 {
			list = append(list, Extent{Card: r.addr, Size: r.size})
		}
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
	own := []run{{ch.cardUSERD(), gf100.USERDSize}}
	for _, e := range g.extents.list {
		own = append(own, run{e.card, e.size})
	}
	if !write {
		own = append(own, g.privateRuns...)
	}
	for n > 0 {
		i := slices.IndexFunc(own, func(r run) bool { return addr >= r.addr && addr-r.addr < r.size })
		if i < 0 {
			return false
		}
		step := min(n, own[i].size-(addr-own[i].addr))
		addr, n = addr+step, n-step
	}
	return true
}
