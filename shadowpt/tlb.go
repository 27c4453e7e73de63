package shadowpt

const (
	tlbSmall = 512 // entries for 4 KiB pages
	tlbBig   = 64  // entries for 128 KiB pages
)

// TLB is an address space with a cache of translations. It belongs to one goroutine at a
// time. Like the hardware's, it does not notice changes of tables: the code that changes
// them must flush.
type TLB struct {
	Misses uint64 // look-ups that walked the tables

	space Space
	small [tlbSmall]tlbEntry
	big   [tlbBig]tlbEntry
}

// tlbEntry is one cached page; the tag is its page number plus one.
type tlbEntry struct {
	tag uint64
	pte PTE
}

// Bind sets the address space and flushes.
func (t *TLB) Bind(s Space) {
	t.space = s
	t.Flush()
}

// Space returns the bound address space.
func (t *TLB) Space() Space { return t.space }

// Flush drops every translation.
func (t *TLB) Flush() {
	clear(t.small[:])
	clear(t.big[:])
}

// Lookup translates va. pte.Addr is the address of va itself, not of its page, and end is
// the first address after its page. On failure ok is false and reason says why.
func (t *TLB) Lookup(m Memory, va uint64) (pte PTE, end uint64, reason Reason, ok bool) {
	if pte, end, ok = t.Cached(va); ok {
		return pte, end, 0, true
	}
	t.Misses++
	p, reason, ok := Walk(m, t.space, va)
	if !ok {
		return PTE{}, 0, reason, false
	}
	e := tlbEntry{pte: p.PTE}
	pte, end = t.at(&e, va, p.Size)
	if p.Size == BigPage {
		t.enterBig(va>>BigShift, p.PTE)
		return pte, end, 0, true
	}
	t.enterSmall(va>>SmallShift, p.PTE)
	if g, ok := m.(GroupReader); ok {
		t.enterGroup(g, va)
	}
	return pte, end, 0, true
}

// GroupEntries is how many small pages share the range of a big one.
const GroupEntries = BigPage / SmallPage

// GroupReader is a Memory that reads the entries of a group of small pages in one call. On
// a miss a TLB then looks up the whole group, because copies proceed to the next page.
type GroupReader interface {
	Memory
	ReadGroup(t Target, addr uint64, q *[GroupEntries]uint64) (ok bool)
}

// enterGroup caches the valid small pages around va. va is on a small page, so no big page
// hides them. Contiguous pages are cached as one big page.
func (t *TLB) enterGroup(m GroupReader, va uint64) {
	first := va &^ (BigPage - 1)
	if first+BigPage-1 > t.space.Limit {
		return // only the walk checks the space's limit
	}
	pde, ok := m.Read64(t.space.Target, t.space.Dir+va>>dirShift*8)
	table := DecodePDE(pde).Small
	var q [GroupEntries]uint64
	if !ok || !table.Present || !m.ReadGroup(table.Target, table.Addr+first%DirSpan>>SmallShift*8, &q) {
		return
	}
	if head := DecodePTE(q[0]); together(&q) && head.Valid && head.Addr+BigPage <= VASize {
		t.enterBig(first>>BigShift, head)
		return
	}
	for i, e := range q {
		if pte := DecodePTE(e); pte.Valid {
			t.enterSmall(first>>SmallShift+uint64(i), pte)
		}
	}
}

// together reports whether the entries differ only in addresses one page apart.
func together(q *[GroupEntries]uint64) bool {
	step := pteAddr.put(SmallPage >> addrShift)
	for i, e := range q {
		if e != q[0]+uint64(i)*step {
			return false
		}
	}
	return true
}

func (t *TLB) enterBig(page uint64, pte PTE) {
	t.big[bigSlot(page)] = tlbEntry{tag: page + 1, pte: pte}
}

func (t *TLB) enterSmall(page uint64, pte PTE) {
	t.small[smallSlot(page)] = tlbEntry{tag: page + 1, pte: pte}
}

// smallSlot and bigSlot spread page numbers so that two equally aligned buffers, as of a
// copy, do not evict each other.
func smallSlot(page uint64) uint64 { return (page ^ page>>9 ^ page>>18) % tlbSmall }

func bigSlot(page uint64) uint64 { return (page ^ page>>6 ^ page>>12) % tlbBig }

// Cached is Lookup without a walk: ok is false if the page is not cached.
func (t *TLB) Cached(va uint64) (pte PTE, end uint64, ok bool) {
	if va > t.space.Limit {
		return PTE{}, 0, false // a cached page may extend beyond the limit
	}
	big, small := va>>BigShift, va>>SmallShift
	if e := &t.big[bigSlot(big)]; e.tag == big+1 {
		pte, end = t.at(e, va, BigPage)
		return pte, end, true
	}
	if e := &t.small[smallSlot(small)]; e.tag == small+1 {
		pte, end = t.at(e, va, SmallPage)
		return pte, end, true
	}
	return PTE{}, 0, false
}

// at returns a page's entry for va, and where the page or the space ends.
func (t *TLB) at(e *tlbEntry, va, size uint64) (PTE, uint64) {
	pte := e.pte
	pte.Addr += va & (size - 1)
	return pte, min(va&^(size-1)+size, t.space.Limit+1)
}
