package soft

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	tlbSmall = 512 // entries for 4 KiB pages
	tlbBig   = 64  // entries for 128 KiB pages
)

// vm is an address space in use: page tables as an instance block names them,
// and translations remembered since the last invalidate. It is used by one
// goroutine at a time, with the host attached.
type vm struct {
	card  *Card
	user  int // channel, or -1 for a window
	space shadowpt.Space
	gen   uint64 // Card.tlbGen when the translations were valid

	small [tlbSmall]tlbEntry
	big   [tlbBig]tlbEntry
	fault engine.Fault
}

// tlbEntry is one remembered page; the tag is its page number plus one.
type tlbEntry struct {
	tag  uint64
	page shadowpt.PTE
}

// instanceSpace reads the address space out of an instance block.
func instanceSpace(inst []byte) shadowpt.Space {
	return shadowpt.Space{
		Dir:    uint64(gf100.InstPDBHi.Get(inst))<<32 | uint64(gf100.InstPDBLo.Get(inst))<<12,
		Target: shadowpt.Target(gf100.InstPDBTarget.Get(inst)),
		Limit:  uint64(gf100.InstLimitHi.Get(inst))<<32 | uint64(gf100.InstLimitLo.Get(inst))<<12 | 0xfff,
	}
}

// bind gives the vm other page tables.
func (m *vm) bind(s shadowpt.Space) {
	m.space = s
	m.flush()
}

func (m *vm) flush() {
	clear(m.small[:])
	clear(m.big[:])
}

// sync drops the translations if somebody invalidated since the last call. It
// is called at the start of each step; until the step ends the card reports the
// invalidate as not done.
func (m *vm) sync() {
	if gen := m.card.tlbGen.Load(); gen != m.gen {
		m.flush()
		m.gen = gen
	}
}

// Bytes implements engine.Memory.
func (m *vm) Bytes(va uint64, n int, write bool) ([]byte, *engine.Fault) {
	page, end, reason, ok := m.lookup(va)
	switch {
	case !ok:
		return nil, m.fail(va, write, reason)
	case page.Supervisor:
		return nil, m.fail(va, write, shadowpt.PageSystemOnly)
	case write && page.ReadOnly:
		return nil, m.fail(va, write, shadowpt.PageReadOnly)
	}
	addr := page.Addr
	first := end - va // bytes left in the first page
	run := first
	for run < uint64(n) {
		next, nextEnd, _, ok := m.lookup(va + run)
		if !ok || next.Addr != addr+run || next.Target != page.Target || next.Supervisor || write && next.ReadOnly {
			break
		}
		run = nextEnd - va
	}
	run = min(run, uint64(n))
	if b := m.memory(page.Target, addr, int(run), write); b != nil {
		return b, nil
	}
	// The run may leave the VRAM or a mapping of system memory; the first page
	// alone may not.
	if b := m.memory(page.Target, addr, int(min(first, run)), write); b != nil {
		return b, nil
	}
	return nil, m.fail(va, write, shadowpt.PageNotPresent)
}

// fail records a fault; the vm's own Fault value is reused so that faulting
// does not allocate.
func (m *vm) fail(va uint64, write bool, r shadowpt.Reason) *engine.Fault {
	m.fault = engine.Fault{VA: va, Write: write, Reason: uint8(r)}
	return &m.fault
}

// lookup translates va. The returned entry's Addr is va's own, and end is where
// its page ends.
func (m *vm) lookup(va uint64) (pte shadowpt.PTE, end uint64, r shadowpt.Reason, ok bool) {
	if pte, end, r, ok = m.cached(va); ok {
		return pte, end, r, ok
	}
	bigPage, smallPage := va>>shadowpt.BigShift, va>>shadowpt.SmallShift
	p, r, ok := shadowpt.Walk(m, m.space, va)
	if !ok {
		return shadowpt.PTE{}, 0, r, false
	}
	m.card.stats.TLBMisses.Add(1)
	if p.Size == shadowpt.BigPage {
		e := &m.big[bigPage%tlbBig]
		*e = tlbEntry{tag: bigPage + 1, page: p.PTE}
		return e.at(va, shadowpt.BigPage)
	}
	e := &m.small[smallPage%tlbSmall]
	*e = tlbEntry{tag: smallPage + 1, page: p.PTE}
	return e.at(va, shadowpt.SmallPage)
}

// cached is lookup without a walk: ok is false if the page is not remembered.
func (m *vm) cached(va uint64) (pte shadowpt.PTE, end uint64, r shadowpt.Reason, ok bool) {
	bigPage, smallPage := va>>shadowpt.BigShift, va>>shadowpt.SmallShift
	if e := &m.big[bigPage%tlbBig]; e.tag == bigPage+1 {
		return e.at(va, shadowpt.BigPage)
	}
	if e := &m.small[smallPage%tlbSmall]; e.tag == smallPage+1 {
		return e.at(va, shadowpt.SmallPage)
	}
	return shadowpt.PTE{}, 0, 0, false
}

func (e *tlbEntry) at(va, size uint64) (shadowpt.PTE, uint64, shadowpt.Reason, bool) {
	pte := e.page
	pte.Addr += va & (size - 1)
	return pte, va&^(size-1) + size, 0, true
}

// memory returns n bytes of VRAM or of system memory, or nil.
func (m *vm) memory(t shadowpt.Target, addr uint64, n int, write bool) []byte {
	if m.card.cfg.Watch != nil && m.user >= 0 {
		m.card.cfg.Watch(uint8(m.user), t, addr, n, write)
	}
	return m.card.memory(t, addr, n, write)
}

// Read64 implements shadowpt.Memory: it reads a table entry.
func (m *vm) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	b := m.memory(t, addr, 8, false)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}
