package aggregator

import (
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Events is where a guest hears from the card. Its methods are called with no
// lock of this package held, and may call back into the Guest.
type Events interface {
	// EngineEvent reports non-stall events; bit n is engine n.
	EngineEvent(engines uint32)
	MMUFault(gf100.MMUFault)
	PBDMAError(gf100.PBDMAError)
	// Done reports that control operations ended: registers that read "pending"
	// may read otherwise now. runlist is set if one of them was a runlist.
	Done(runlist bool)
}

// Guest is one virtual GPU's share of the card.
type Guest struct {
	agg     *Aggregator
	name    string
	index   int
	limits  GuestConfig
	extents extents
	ev      Events
	stats   GuestStats

	windows windows // guarded by the virtual GPU's lock

	mu       sync.Mutex // guards what follows
	wake     *sync.Cond // there is something to do, or something was done
	channels [gf100.Channels]guestChannel
	todo     todo
	doing    todo
	closing  bool

	// Owned by the guest's goroutine.
	spaces map[shadowpt.Space]*space

	tables  atomic.Uint64 // bytes of card memory in shadow tables
	working sync.WaitGroup
}

// guestChannel is an entry of the guest's channel table: what the guest asked
// for, and the card's channel that stands behind it, if any.
type guestChannel struct {
	inst    uint64 // of the instance block, in the guest's VRAM
	bound   bool
	enabled bool
	ch      *channel
}

// todo is what the guest's goroutine has to do. It is a state, not a queue: a
// guest that asks a thousand times costs no more than one that asks once.
type todo struct {
	bind       channelSet // inst or bound changed
	preempt    channelSet
	bell       channelSet
	runlist    bool
	base       uint32 // NV_PFIFO_RUNLIST_BASE
	count      uint32
	invalidate invalidations
}

// invalidations names the directories whose shadows have to be built anew.
type invalidations struct {
	all  bool
	one  bool
	dirs [4]shadowpt.Space // Dir and Target only; more than four make it all
	n    int
}

func (v *invalidations) add(dir shadowpt.Space) {
	v.one = true
	for _, d := range v.dirs[:v.n] {
		if d == dir {
			return
		}
	}
	if v.n == len(v.dirs) {
		v.all = true
		return
	}
	v.dirs[v.n] = dir
	v.n++
}

func (v *invalidations) any() bool { return v.all || v.one }

func (v *invalidations) has(s shadowpt.Space) bool {
	if v.all {
		return true
	}
	for _, d := range v.dirs[:v.n] {
		if d.Dir == s.Dir && d.Target == s.Target {
			return true
		}
	}
	return false
}

func (t *todo) empty() bool {
	return t.bind.empty() && t.preempt.empty() && t.bell.empty() && !t.runlist && !t.invalidate.any()
}

// channelSet is a set of channel numbers.
type channelSet [gf100.Channels / 64]uint64

func (s *channelSet) add(id uint8)      { s[id/64] |= 1 << (id % 64) }
func (s *channelSet) has(id uint8) bool { return s[id/64]>>(id%64)&1 != 0 }
func (s *channelSet) empty() bool       { return *s == channelSet{} }

// each calls f for the members, lowest first.
func (s *channelSet) each(f func(id uint8)) {
	for id := range uint8(gf100.Channels) {
		if s.has(id) {
			f(id)
		}
	}
}

func newGuest(a *Aggregator, index int, cfg GuestConfig, e extents, ev Events) *Guest {
	g := &Guest{
		agg: a, name: cfg.Name, index: index, limits: cfg, extents: e, ev: ev,
		spaces: make(map[shadowpt.Space]*space),
	}
	g.wake = sync.NewCond(&g.mu)
	g.windows.init(g)
	return g
}

func (g *Guest) start() {
	g.working.Add(1)
	go g.work()
}

// Remove ends the guest's channels, scrubs its memory and gives everything back.
// No other method may be called after it.
func (g *Guest) Remove() error {
	g.DetachMemory()
	g.mu.Lock()
	g.closing = true
	g.wake.Broadcast()
	g.mu.Unlock()
	g.working.Wait()
	err := g.scrub()
	g.agg.forget(g)
	return err
}

func (g *Guest) scrub() error {
	for _, e := range g.extents.list {
		if err := g.agg.ctl.card.ScrubVRAM(e.card, e.size); err != nil {
			return err
		}
	}
	return nil
}

// Reset ends all channels and scrubs the memory, as a function-level reset does.
// It waits, with a bound, until the card has let go.
func (g *Guest) Reset() error {
	g.mu.Lock()
	for id := range uint8(gf100.Channels) {
		g.setBound(id, 0, false)
		g.channels[id].enabled = false
	}
	for !g.todo.empty() || !g.doing.empty() {
		g.wake.Wait()
	}
	g.mu.Unlock()
	g.windows.reset()
	return g.scrub()
}

// AttachMemory gives the guest's channels the memory behind its bus addresses.
func (g *Guest) AttachMemory(m card.Bus) { g.agg.bus.attach(g.index, m) }

// DetachMemory takes it away. When it returns, nothing of the card uses it.
func (g *Guest) DetachMemory() { g.agg.bus.attach(g.index, nil) }

// Unmapped is called when n bytes of bus addresses from addr on have gone, before
// anybody is told that they have. It returns when no shadow names them and no
// access of the card still uses them.
func (g *Guest) Unmapped(addr, n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return
	}
	g.todo.invalidate.all = true
	g.wake.Broadcast()
	for (g.todo.invalidate.any() || g.doing.invalidate.any()) && !g.closing {
		g.wake.Wait()
	}
}

// VRAM returns the size of the guest's memory in bytes.
func (g *Guest) VRAM() uint64 { return g.extents.size }

// Stats returns the guest's counters.
func (g *Guest) Stats() *GuestStats { return &g.stats }

// withMemory calls f with the guest's system memory pinned. m is nil if there
// is none.
func (g *Guest) withMemory(f func(m card.Bus)) {
	b := &g.agg.bus
	b.mu.RLock()
	defer b.mu.RUnlock()
	m := b.host[g.index]
	if m != nil {
		m.Acquire()
		defer m.Release()
	}
	f(m)
}

// read copies memory of the guest: its VRAM through the extents, its system
// memory through its DMA map.
func (g *Guest) read(t shadowpt.Target, addr uint64, p []byte) bool {
	switch {
	case t == shadowpt.VRAM:
		return g.eachRun(addr, p, g.agg.ctl.card.ReadVRAM)
	case t.System():
		ok := false
		g.withMemory(func(m card.Bus) {
			if m == nil {
				return
			}
			if src := m.Slice(addr, len(p), false); src != nil {
				copy(p, src)
				ok = true
			}
		})
		return ok
	}
	return false
}

// eachRun calls f for the pieces of p by where they lie on the card.
func (g *Guest) eachRun(addr uint64, p []byte, f func(card uint64, p []byte) bool) bool {
	if addr >= g.extents.size || uint64(len(p)) > g.extents.size-addr {
		return false
	}
	for len(p) > 0 {
		at, together, _ := g.extents.at(addr)
		n := min(uint64(len(p)), together)
		if !f(at, p[:n]) {
			return false
		}
		addr += n
		p = p[n:]
	}
	return true
}

// ReadTable implements shadowpt.Guest.
func (g *Guest) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool { return g.read(t, addr, p) }

// Translate implements shadowpt.Guest.
func (g *Guest) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t == shadowpt.VRAM {
		return g.extents.translate(addr, n)
	}
	if !t.System() || addr >= BusWindow || n > BusWindow-addr {
		return 0, false
	}
	ok := false
	g.withMemory(func(m card.Bus) { ok = m != nil && m.Slice(addr, int(n), write) != nil })
	return uint64(g.index)<<busShift | addr, ok
}

// AllocTable implements shadowpt.Card.
func (g *Guest) AllocTable(n uint64) (uint64, bool) {
	if g.tables.Add(n) > g.limits.Tables {
		g.tables.Add(-n)
		return 0, false
	}
	addr, err := g.agg.allocOwn(n)
	if err != nil {
		g.tables.Add(-n)
		return 0, false
	}
	return addr, true
}

// FreeTable implements shadowpt.Card.
func (g *Guest) FreeTable(addr, n uint64) {
	g.agg.freeOwn(addr, n)
	g.tables.Add(-n)
}

// WriteTable implements shadowpt.Card.
func (g *Guest) WriteTable(addr uint64, p []byte) { g.agg.ctl.card.WriteVRAM(addr, p) }
