package soft

import (
	"runtime/debug"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// MapDMA implements card.DMA. It waits for no step.
func (c *Card) MapDMA(addr uint64, m card.Mapping) error {
	err := c.mappings.Map(addr, m)
	if err == nil {
		c.mapped[m.Owner].Add(1)
	}
	return err
}

// UnmapDMA implements card.DMA.
func (c *Card) UnmapDMA(addr, n uint64) {
	var waited [len(c.owners)]bool
	for _, m := range c.mappings.Unmap(addr, n) {
		for _, owner := range []uint8{m.Owner, anyOwner} {
			if !waited[owner] {
				c.awaitSteps(owner)
				waited[owner] = true
			}
		}
		if c.mapped[m.Owner].Add(-1) == 0 && c.compiler != nil {
			c.forgetPrograms(m.Owner)
		}
	}
}

// programsOf is what runs an owner's programs as machine code. An owner without memory has nothing: its process would stay
// when it is gone.
func (c *Card) programsOf(owner uint8) engine.Native {
	if c.mapped[owner].Load() == 0 {
		return nil
	}
	return c.compiler.Of(owner)
}

// forgetPrograms ends the process of an owner whose memory is gone: it has the memory mapped, too.
func (c *Card) forgetPrograms(owner uint8) {
	c.owners[owner].Lock()
	defer c.owners[owner].Unlock()
	c.compiler.Forget(owner)
}

// awaitSteps waits for the steps under way of an owner's channels, which may still use what they
// found before.
func (c *Card) awaitSteps(owner uint8) {
	c.owners[owner].Lock()
	//lint:ignore SA2001 taking the lock is the wait
	c.owners[owner].Unlock()
}

// writes are ranges of the host's memory that one step, or one access, got to write. They
// are reported at its end: a dirty log that is read earlier does not have the bytes yet.
type writes []struct {
	m      *card.Mapping
	off, n uint64
}

// report ends a step. The caller still holds the owner's lock.
func (w *writes) report() {
	for _, r := range *w {
		r.m.Wrote(r.off, r.n)
	}
	*w = (*w)[:0]
}

// anyOwner is the owner of accesses that are no channel's. It reaches all memory.
const anyOwner = gf100.Owners

// memory returns n bytes of the card's or the host's memory, or nil if the owner does not reach
// them. They are writable if w is not nil. The caller holds the owner's lock (read side) if t is
// system memory, and reports w.
func (c *Card) memory(t shadowpt.Target, addr uint64, n int, owner uint8, w *writes) []byte {
	if t == shadowpt.VRAM {
		return c.vram.slice(addr, n)
	}
	if !t.System() {
		return nil
	}
	m, off := c.mappings.At(addr, w != nil)
	if m == nil {
		c.stats.UnmappedDMA.Note(addr, w != nil)
		return nil
	}
	if owner != anyOwner && owner != m.Owner || uint64(n) > uint64(len(m.Mem))-off || !m.Reach(off, uint64(n)) {
		return nil
	}
	if w != nil && m.Wrote != nil {
		*w = append(*w, writes{{m, off, uint64(n)}}...)
	}
	return m.Mem[off : off+uint64(n)]
}

// access calls f, which accesses memory of target t, with the host's memory pinned if that is
// the host's. If an access of the process fails, f is called with Peer, which has no memory:
// guest memory belongs to another process, which may truncate its file under our mapping,
// and that must fail like an access on a bus.
func (c *Card) access(t shadowpt.Target, f func(t shadowpt.Target)) {
	if t.System() && !c.reach(t, f) {
		t = shadowpt.Peer
	} else if t.System() {
		return
	}
	f(t)
}

// reach calls f with the host's memory pinned, and reports whether it came through.
func (c *Card) reach(t shadowpt.Target, f func(t shadowpt.Target)) (ok bool) {
	c.owners[anyOwner].RLock()
	defer c.owners[anyOwner].RUnlock()
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() { ok = !card.MemoryFault(recover()) }()
	f(t)
	return true
}
