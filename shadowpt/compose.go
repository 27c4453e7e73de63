package shadowpt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// pageMask is a set of pages of one table. Most pages of large tables are empty; they are
// skipped as a whole.
type pageMask uint64

func allPages(size uint64) pageMask { return 1<<(size/SmallPage) - 1 }

func (m *pageMask) add(page int) { *m |= 1 << page }

// each calls f for the pages, lowest first.
func (m pageMask) each(f func(page int)) {
	for ; m != 0; m &= m - 1 {
		f(bits.TrailingZeros64(uint64(m)))
	}
}

// sheet holds the entries of a table while it is built. Pages that are not in live are
// zero.
type sheet struct {
	entries []uint64
	live    pageMask
}

func (t *sheet) page(i int) []uint64 { return t.entries[i*pageEntries : (i+1)*pageEntries] }

func (t *sheet) clear() {
	t.live.each(func(i int) { clear(t.page(i)) })
	t.live = 0
}

// take decodes a page of entries, or its beginning, into a zero page. It reports whether
// any entry is set.
func (t *sheet) take(i int, b []byte) bool {
	if bytes.Equal(b, zeroPage[:len(b)]) {
		return false
	}
	t.live.add(i)
	page := t.page(i)
	for k := 0; k < len(b); k += 8 {
		page[k/8] = binary.LittleEndian.Uint64(b[k:])
	}
	return true
}

// group returns the small entries that cover a big entry's range, for writing.
func (t *sheet) group(big int) []uint64 {
	t.live.add(big * GroupEntries / pageEntries)
	return t.entries[big*GroupEntries : (big+1)*GroupEntries]
}

// compose translates the guest's entries in the shadow's Work and writes the node's tables.
func (s *Shadow) compose(n *node) {
	small, big := &s.work.small, &s.work.big
	n.starved = false
	n.over = [len(n.over)]uint64{}
	small.live.each(func(at int) {
		page := small.page(at)
		for i, q := range page {
			if q != 0 {
				page[i] = s.entry(q, SmallPage)
			}
		}
	})
	big.live.each(func(at int) {
		page := big.page(at)
		for i, q := range page {
			page[i] = s.entry(q, BigPage)
			if i := at*pageEntries + i; q&valid != 0 && big.entries[i] == 0 {
				n.setOver(uint64(i), true)
				s.split(small.group(i), q)
			}
		}
	})
	if s.write(n, &n.big, big); n.big.addr == 0 {
		n.mask(small, big)
	}
	s.write(n, &n.small, small)
}

// mask removes the small pages under big ones for which there was no room: a big page
// takes precedence even when it is missing.
func (n *node) mask(small, big *sheet) {
	big.live.each(func(at int) {
		for i, q := range big.page(at) {
			if i := at*pageEntries + i; q != 0 {
				n.setOver(uint64(i), true)
				clear(small.group(i))
			}
		}
	})
}

// split enters a big page as small pages, because its memory is not contiguous on the card.
// They replace the guest's small pages there, as a valid big page does.
func (s *Shadow) split(small []uint64, q uint64) {
	p := DecodePTE(q)
	for i := range small {
		small[i] = s.part(p, i)
	}
}

// part translates one small page of a big entry.
func (s *Shadow) part(p PTE, i int) uint64 {
	if p.Addr += uint64(i) * SmallPage; p.Addr >= VASize {
		return 0 // the address field is VABits wide
	}
	return s.entry(p.Encode(), SmallPage)
}

// write writes entries into a table. The table is allocated for its first entry and kept
// until the node is dropped. Pages that are zero and stay zero are not written.
func (s *Shadow) write(n *node, t *cardTable, entries *sheet) {
	if t.addr == 0 && (entries.empty() || !s.alloc(n, t)) {
		return
	}
	pages := entries.live | t.used
	t.used = pages
	for pages != 0 {
		first := bits.TrailingZeros64(uint64(pages))
		end := first + bits.TrailingZeros64(^uint64(pages>>first))
		b := s.work.buf[:(end-first)*SmallPage]
		for i, q := range entries.entries[first*pageEntries : end*pageEntries] {
			binary.LittleEndian.PutUint64(b[i*8:], q)
		}
		s.card.WriteTable(t.addr+uint64(first)*SmallPage, b)
		s.Counts.Rewritten += uint64(end-first) * pageEntries
		pages &^= 1<<end - 1
	}
}

// alloc allocates a table for the node.
func (s *Shadow) alloc(of *node, t *cardTable) (ok bool) {
	if t.addr, ok = s.card.AllocTable(t.size); !ok {
		t.addr = 0
		s.Counts.NoRoom++
		of.starved = true
	}
	return ok
}

func (t *sheet) empty() bool {
	for m := t.live; m != 0; m &= m - 1 {
		for _, q := range t.page(bits.TrailingZeros64(uint64(m))) {
			if q != 0 {
				return false
			}
		}
	}
	return true
}
