package soft

import (
	"os"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// How much memory around an address Place returns at most. System memory becomes present and dirty for it.
const (
	placeVRAM   = 4 << 20
	placeSystem = 16 * shadowpt.SmallPage
)

// Place implements engine.Places.
func (x *run) Place(va uint64, write bool) (engine.Place, bool) {
	x.env.Charge(engine.CostLookup)
	return x.vm.place(va&^(shadowpt.SmallPage-1), write)
}

// Version implements engine.Places.
func (x *run) Version() uint64 { return x.vm.places }

// place finds the memory that lies together around a page.
func (m *vm) place(va uint64, write bool) (engine.Place, bool) {
	p, ok := m.reaches(va, write)
	if !ok || m.card.cfg.Watch != nil {
		return engine.Place{}, false
	}
	window := uint64(placeVRAM)
	if p.Target.System() {
		window = placeSystem
	}
	start := va &^ (window - 1)
	end := start + window
	first, n := m.together(start, end, p)
	if start+n <= va { // something else lies before the page
		start = va
		first, n = m.together(start, end, p)
	}
	out := engine.Place{VA: start, Write: !p.ReadOnly}
	var size uint64
	if p.Target.System() {
		out.Write, out.Step, m.lent = write, true, true
		out.File, out.Off, size = m.card.systemPlace(first, n, m.owner, write, &m.writes)
	} else {
		out.File, out.Off, size = m.card.vram.place(first, n)
	}
	if out.Size = size; out.File == nil || start+size <= va {
		return out, false
	}
	return out, true
}

// reaches translates a page that programs reach in a file.
func (m *vm) reaches(va uint64, write bool) (shadowpt.PTE, bool) {
	p, _, _, ok := m.lookup(va)
	ok = ok && !p.Sparse && (!p.Supervisor || m.privileged) && !(write && p.ReadOnly) && (p.Target == shadowpt.VRAM || p.Target.System())
	return p, ok
}

// together returns the address in the card's memory, or on the bus, at which an address is kept, and how many
// bytes up to end follow there with the same rights as like.
func (m *vm) together(va, end uint64, like shadowpt.PTE) (addr, n uint64) {
	for va+n < end {
		p, pageEnd, _, ok := m.lookup(va + n)
		if n == 0 {
			addr = p.Addr
		}
		if !ok || p.Sparse || p.Supervisor != like.Supervisor || p.ReadOnly != like.ReadOnly || p.Target != like.Target || p.Addr != addr+n {
			break
		}
		n = min(pageEnd, end) - va
	}
	return addr, n
}

// systemPlace finds the host's memory in its file, as [Card.memory] finds it here. The caller holds the owner's
// lock and reports w.
func (c *Card) systemPlace(addr, n uint64, owner uint8, write bool, w *writes) (f *os.File, off, size uint64) {
	m, at := c.mappings.At(addr, write)
	if m == nil || m.File == nil || (m.Off+at)%pageSize != 0 || owner != anyOwner && owner != m.Owner {
		return nil, 0, 0
	}
	size = min(n, uint64(len(m.Mem))-at) &^ (pageSize - 1)
	if size == 0 || !m.Reach(at, size) {
		return nil, 0, 0
	}
	if write && m.Wrote != nil {
		*w = append(*w, writes{{m, at, size}}...)
	}
	return m.File, m.Off + at, size
}

// place returns the file that has the n bytes of VRAM at addr, and how many of them lie there together.
func (v *vram) place(addr, n uint64) (f *os.File, off, size uint64) {
	if v.slice(addr, int(n)) == nil {
		n = pageSize
	}
	if v.slice(addr, int(n)) == nil {
		return nil, 0, 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.runs(addr, n, func(_, n uint64, at backing) bool {
		f, off, size = at.file, at.off, n
		return false
	})
	return f, off, size
}
