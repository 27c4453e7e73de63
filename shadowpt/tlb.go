package shadowpt

const (
	tlbSmall = 512 // entries for 4 KiB pages
	tlbBig   = 64  // entries for 128 KiB pages
)

// TLB is an address space with the translations that were looked up since the
// last Flush. It belongs to one goroutine at a time. Like the hardware's, it
// does not notice that tables change: whoever changes them flushes.
type TLB struct {
	Misses uint64 // look-ups that walked the tables

	space Space
	small [tlbSmall]tlbEntry
	big   [tlbBig]tlbEntry
}

// tlbEntry is one remembered page; the tag is its page number plus one.
type tlbEntry struct {
	tag uint64
	pte PTE
}

// Bind gives the TLB another address space and flushes it.
func (t *TLB) Bind(s Space) {
	t.space = s
	t.Flush()
}

// Space returns the address space that is bound.
func (t *TLB) Space() Space { return t.space }

// Flush forgets every translation.
func (t *TLB) Flush() {
	clear(t.small[:])
	clear(t.big[:])
}

// Lookup translates va. The entry's Addr is va's own, not its page's, and end is
// the first address behind its page. On failure ok is false and reason says why.
func (t *TLB) Lookup(m Memory, va uint64) (pte PTE, end uint64, reason Reason, ok bool) {
	if pte, end, ok = t.Cached(va); ok {
		return pte, end, 0, true
	}
	t.Misses++
	p, reason, ok := Walk(m, t.space, va)
	if !ok {
		return PTE{}, 0, reason, false
	}
	small, big := va>>SmallShift, va>>BigShift
	e, tag := &t.small[small%tlbSmall], small+1
	if p.Size == BigPage {
		e, tag = &t.big[big%tlbBig], big+1
	}
	*e = tlbEntry{tag: tag, pte: p.PTE}
	pte, end = e.at(va, p.Size)
	return pte, end, 0, true
}

// Cached is Lookup without a walk: ok is false if the page is not remembered.
func (t *TLB) Cached(va uint64) (pte PTE, end uint64, ok bool) {
	big, small := va>>BigShift, va>>SmallShift
	if e := &t.big[big%tlbBig]; e.tag == big+1 {
		pte, end = e.at(va, BigPage)
		return pte, end, true
	}
	if e := &t.small[small%tlbSmall]; e.tag == small+1 {
		pte, end = e.at(va, SmallPage)
		return pte, end, true
	}
	return PTE{}, 0, false
}

func (e *tlbEntry) at(va, size uint64) (PTE, uint64) {
	pte := e.pte
	pte.Addr += va & (size - 1)
	return pte, va&^(size-1) + size
}
