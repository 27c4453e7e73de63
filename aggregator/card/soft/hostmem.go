package soft

import (
	"runtime/debug"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// memory returns n bytes of the card's or the host's memory, or nil. The caller
// holds the host attached if t is system memory.
func (c *Card) memory(t shadowpt.Target, addr uint64, n int, write bool) []byte {
	if t == shadowpt.VRAM {
		return c.vram.slice(addr, n)
	}
	if t.System() && c.host != nil {
		return c.host.Slice(addr, n, write)
	}
	return nil
}

// pinHost keeps the host attached and its memory mapped until unpinHost.
func (c *Card) pinHost() {
	c.hostMu.RLock()
	if c.host != nil {
		c.host.Acquire()
	}
}

func (c *Card) unpinHost() {
	if c.host != nil {
		c.host.Release()
	}
	c.hostMu.RUnlock()
}

// access calls f, which accesses memory of target t, with the host pinned if that is the
// host's. If an access of the process fails, f is called with Peer, which has no memory:
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

// reach calls f with the host pinned, and reports whether it came through.
func (c *Card) reach(t shadowpt.Target, f func(t shadowpt.Target)) (ok bool) {
	c.pinHost()
	defer c.unpinHost()
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() { ok = !card.MemoryFault(recover()) }()
	f(t)
	return true
}
