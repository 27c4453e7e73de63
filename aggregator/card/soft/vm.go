package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// vm is an address space in use: the page tables of an instance block, and translations
// cached since the last invalidate. It is used by one goroutine at a time, with the host
// attached.
type vm struct {
	card  *Card
	user  int    // channel, or -1 for a window
	owner uint8  // of the channel, or anyOwner
	gen   uint64 // Card.tlbGen and Card.flushes when the translations were valid
	flush uint64
	tlb   shadowpt.TLB
	pages engine.Pages // that programs reached
	lent  bool         // system memory, since the last sync
	// places is the number of what Place returns, and moved is Card.moved when that was true.
	places, moved uint64
	// privileged is an address space that reaches supervisor pages.
	privileged bool
	discarded  *[shadowpt.SmallPage]byte // what is written to sparse pages
	fault      engine.Fault
	meter      *engine.Meter // of the step under way; nil for a window

	writes writes // of the step under way
}

// instanceSpace reads the address space out of an instance block.
func instanceSpace(inst []byte) shadowpt.Space {
	dir, target, limit := gf100.InstanceSpace(inst)
	return shadowpt.Space{Dir: dir, Target: shadowpt.Target(target), Limit: limit}
}

// bind sets the address space.
func (m *vm) bind(f *shadowpt.Format, s shadowpt.Space) {
	m.tlb.Bind(f, s)
	m.pages.Drop()
	m.places = m.card.places.Add(1)
}

// drop forgets the translations.
func (m *vm) drop() {
	m.tlb.Flush()
	m.pages.Drop()
	m.places = m.card.places.Add(1)
	m.card.stats.TLBFlushes.Add(1)
}

// sync drops the translations if they were invalidated since the last call. It
// is called at the start of each step; until the step ends the card reports the
// invalidate as not done. Programs' pages of system memory are only for a step: the host may unmap
// them then, and each step reports what it wrote.
func (m *vm) sync() {
	if flush := m.card.flushes[m.owner].Load(); flush != m.flush {
		m.drop()
		m.flush = flush
	}
	if gen := m.card.tlbGen.Load(); gen != m.gen {
		if m.card.concerned(m.tlb.Space(), m.gen, gen) {
			m.drop()
		}
		m.gen = gen
	}
	if moved := m.card.moved.Load(); moved != m.moved {
		m.moved, m.places = moved, m.card.places.Add(1)
	}
	if m.lent || m.card.cfg.Watch != nil {
		m.pages.Drop()
		m.lent = false
	}
}

// mostPopulated is the most system memory that one call makes present: a step ends between calls.
const mostPopulated = 64 * shadowpt.SmallPage

// Bytes implements engine.Memory.
func (m *vm) Bytes(va uint64, n int, write bool) ([]byte, *engine.Fault) {
	page, end, reason, ok := m.lookup(va)
	switch {
	case !ok:
		return nil, m.fail(va, write, reason)
	case page.Sparse:
		return m.sparse(va, n, write), nil
	case page.Supervisor && !m.privileged:
		return nil, m.fail(va, write, shadowpt.PageSystemOnly)
	case write && page.ReadOnly:
		return nil, m.fail(va, write, shadowpt.PageReadOnly)
	}
	system := page.Target.System()
	if system {
		m.lent = true
		n = min(n, mostPopulated)
	}
	addr := page.Addr
	run := end - va
	for run < uint64(n) {
		next, nextEnd, _, ok := m.lookup(va + run)
		if !ok || next.Addr != addr+run || next.Target != page.Target || next.Sparse || next.Supervisor && !m.privileged || write && next.ReadOnly {
			break
		}
		run = nextEnd - va
	}
	run = min(run, uint64(n))
	if system && m.meter != nil { // each page may be touched for the first time, not only the first
		m.meter.Charge(int64(run/shadowpt.SmallPage) * engine.CostLookup)
	}
	if b := m.memory(page.Target, addr, int(run), write); b != nil {
		return b, nil
	}
	// The run may leave the VRAM or a mapping of system memory; the rest of a
	// small page may not.
	if b := m.memory(page.Target, addr, int(min(shadowpt.SmallPage-va%shadowpt.SmallPage, run)), write); b != nil {
		return b, nil
	}
	return nil, m.fail(va, write, shadowpt.PageNotPresent)
}

// sparse returns what a page without memory reads as, or a place for what is written to it.
func (m *vm) sparse(va uint64, n int, write bool) []byte {
	n = min(n, int(shadowpt.SmallPage-va%shadowpt.SmallPage))
	if !write {
		return zeros[:n]
	}
	if m.discarded == nil {
		m.discarded = new([shadowpt.SmallPage]byte)
	}
	return m.discarded[:n]
}

var zeros [shadowpt.SmallPage]byte // only read

// fail records a fault; the vm's own Fault value is reused so that faulting
// does not allocate.
func (m *vm) fail(va uint64, write bool, r shadowpt.Reason) *engine.Fault {
	m.fault = engine.Fault{VA: va, Write: write, Reason: uint8(r)}
	return &m.fault
}

// lookup translates va. The returned entry's Addr is va's own, and end is where
// its page ends.
func (m *vm) lookup(va uint64) (pte shadowpt.PTE, end uint64, r shadowpt.Reason, ok bool) {
	if pte, end, ok = m.tlb.Cached(va); ok {
		return pte, end, 0, true
	}
	if pte, end, r, ok = m.tlb.Lookup(m, va); ok {
		m.card.stats.TLBMisses.Add(1)
		if m.meter != nil {
			m.meter.Charge(engine.CostWalk)
		}
	}
	return pte, end, r, ok
}

// memory returns n bytes of VRAM or of system memory, or nil.
func (m *vm) memory(t shadowpt.Target, addr uint64, n int, write bool) []byte {
	if m.card.cfg.Watch != nil && m.user >= 0 {
		m.card.cfg.Watch(uint32(m.user), t, addr, n, write)
	}
	if write {
		return m.card.memory(t, addr, n, m.owner, &m.writes)
	}
	return m.card.memory(t, addr, n, m.owner, nil)
}

// Read64 implements shadowpt.Memory: it reads a table entry.
func (m *vm) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	b := m.memory(t, addr, 8, false)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// ReadGroup implements shadowpt.GroupReader.
func (m *vm) ReadGroup(t shadowpt.Target, addr uint64, q []uint64) bool {
	b := m.memory(t, addr, len(q)*8, false)
	if b == nil {
		return false
	}
	for i := range q {
		q[i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	return true
}
