package aggregator

import (
	"fmt"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Audit returns an error if an access that the card makes for its channel id leaves what
// belongs to the channel's owner: the owner's memory and, for reads, the tables built for
// it. Cards that can report their accesses use it to check the isolation that other code
// enforces; Audit itself prevents nothing.
func (a *Aggregator) Audit(id uint8, t shadowpt.Target, addr uint64, n int, write bool) error {
	for _, g := range a.everybody() {
		ch := g.channels.ByNumber(id)
		if ch == nil {
			continue
		}
		owner, _, ok := a.bus.Of(addr, uint64(n))
		if t == shadowpt.VRAM && g.channels.Owns(ch, addr, uint64(n), write) || t.System() && ok && owner == uint64(g.index) {
			return nil
		}
		return fmt.Errorf("aggregator: channel %d of guest %s accesses %d bytes of target %d at %#x (write %t), which do not belong to it", id, g.name, n, t, addr, write)
	}
	return fmt.Errorf("aggregator: channel %d, which has no owner, accesses %d bytes of target %d at %#x", id, n, t, addr)
}
