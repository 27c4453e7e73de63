package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// commitRunlist acts on a write of NV_PFIFO_RUNLIST. Entries are read once;
// numbers of channels that do not exist are passed over. A list that no memory
// answers for is empty, and an error.
func (f *fifo) commitRunlist(v uint32) {
	c := f.card
	c.stats.Runlists.Add(1)
	base := c.regs.runlistBase.Get()
	var listed [gf100.Channels]bool
	n := min(int(v&0xfff), gf100.Channels) * gf100.RunlistEntrySize
	missing := n > 0
	c.access(shadowpt.Target(base>>28&3), func(t shadowpt.Target) {
		list := c.memory(t, uint64(base&gf100.InstanceAddr)<<12, n, anyOwner, nil)
		missing = missing && list == nil
		for ; len(list) > 0; list = list[gf100.RunlistEntrySize:] {
			if id := binary.LittleEndian.Uint32(list); id < gf100.Channels {
				listed[id] = true
			}
		}
	})
	for i := range f.Slots {
		f.Slots[i].Listed = listed[i] || f.direct(i)
	}
	if missing {
		c.regs.SchedError(gf100.SchedRunlistData)
		c.settle()
	}
	for i := range f.busy {
		if p := &f.busy[i]; f.mustLeave(p) {
			p.lists++
		}
	}
	f.Updating = true
	f.scheduleAll()
	f.completeRunlist()
}

// completeRunlist reports the end of an update to the driver, once the last channel that
// left the list has left its PBDMA too.
func (f *fifo) completeRunlist() {
	if f.Updating && !f.leaving() {
		f.Updating = false
		f.card.regs.RunlistDone()
		f.card.settle()
	}
}

// leaving reports whether a channel that is not in the runlist, or not bound, still runs. It
// leaves out those that an earlier runlist has waited for.
func (f *fifo) leaving() bool {
	for i := range f.busy {
		if p := &f.busy[i]; p.lists <= 1 && f.mustLeave(p) {
			return true
		}
	}
	return false
}

// mustLeave reports whether a PBDMA runs a channel that is not in the runlist, or not bound.
func (f *fifo) mustLeave(p *pbdma) bool {
	return p.ch != nil && (p.ch.dead.Load() || !f.Slots[p.ch.ID].Listed)
}
