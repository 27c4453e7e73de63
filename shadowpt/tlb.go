package shadowpt

const (
	tlbSmall = 512 // entries for small pages
	tlbBig   = 64  // entries for big pages
)

// TLB is an address space with a cache of translations. It belongs to one goroutine at a
// time. Like the hardware's, it does not notice changes of tables: the code that changes
// them must flush.
type TLB struct {
	Misses uint64 // look-ups that walked the tables

	format   *Format
	space    Space
	bigShift uint8
	group    []uint64 // scratch: the entries of one
	small    [tlbSmall]tlbEntry
	big      [tlbBig]tlbEntry
}

// tlbEntry is one cached page; the tag is its page number plus one.
type tlbEntry struct {
	tag uint64
	pte PTE
}

// Bind sets the address space and its format, and flushes.
func (t *TLB) Bind(f *Format, s Space) {
	if t.format != f {
		t.format, t.group = f, make([]uint64, f.group)
		t.bigShift = f.Pages[big].Shift
	}
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
	p, reason, ok := t.format.Walk(m, t.space, va)
	if !ok {
		return PTE{}, 0, reason, false
	}
	size := min(p.Size, 1<<t.bigShift)
	p.Addr += va&^(size-1) - p.VA // a larger page is cached in parts
	e := tlbEntry{pte: p.PTE}
	pte, end = t.at(&e, va, size)
	if size > SmallPage {
		t.enterBig(va>>t.bigShift, p.PTE)
		return pte, end, 0, true
	}
	t.enterSmall(va>>SmallShift, p.PTE)
	if g, ok := m.(GroupReader); ok {
		t.enterGroup(g, va)
	}
	return pte, end, 0, true
}

// GroupReader is a Memory that reads the entries of a group of small pages, those that share
// the range of a big one, in one call. On a miss a TLB then looks up the whole group, because
// copies proceed to the next page.
type GroupReader interface {
	Memory
	ReadGroup(t Target, addr uint64, q []uint64) (ok bool)
}

// enterGroup caches the valid small pages around va. va is on a small page, so no big page
// hides them. Contiguous pages are cached as one big page.
func (t *TLB) enterGroup(m GroupReader, va uint64) {
	f, size := t.format, uint64(1)<<t.bigShift
	first := va &^ (size - 1)
	if first+size-1 > t.space.Limit {
		return // only the walk checks the space's limit
	}
	pde, _, ok := f.entry(m, t.space, va)
	table, q := pde.Small, t.group
	if !ok || !table.Present || !m.ReadGroup(table.Target, table.Addr+f.Pages[small].Index(first)*8, q) {
		return
	}
	if head := f.DecodePTE(q[0]); f.together(q) && head.Valid && head.Addr+size <= f.physSize {
		t.enterBig(first>>t.bigShift, head)
		return
	}
	for i, e := range q {
		if pte := f.DecodePTE(e); pte.Valid {
			t.enterSmall(first>>SmallShift+uint64(i), pte)
		}
	}
}

// together reports whether the entries differ only in addresses one page apart.
func (f *Format) together(q []uint64) bool {
	step := f.EncodeAddr(SmallPage)
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
	page := va >> (t.bigShift & 63) // the mask tells the compiler that the shift is short
	if e := &t.big[bigSlot(page)]; e.tag == page+1 {
		pte, end = t.at(e, va, 1<<(t.bigShift&63))
		return pte, end, true
	}
	page = va >> SmallShift
	if e := &t.small[smallSlot(page)]; e.tag == page+1 {
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
