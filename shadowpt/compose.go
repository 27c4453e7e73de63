package shadowpt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// pageMask is a set of pages of one table. Most pages of large tables are empty; they are
// skipped as a whole.
type pageMask uint64

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
	view    table // the live pages
}

func newSheet(l *Level) sheet {
	return sheet{entries: make([]uint64, l.Entries()), view: make(table, (l.Entries()+pageEntries-1)/pageEntries)}
}

func (t *sheet) page(i int) []uint64 {
	return t.entries[i*pageEntries : min((i+1)*pageEntries, len(t.entries))]
}

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

// table returns the entries by pages.
func (t *sheet) table() table {
	clear(t.view)
	t.live.each(func(i int) { t.view[i] = t.page(i) })
	return t.view
}

// compose translates the guest's entries in the shadow's Work, and gives the card what differs from
// what it has.
func (s *Shadow) compose(n *node) {
	smalls, bigs := &s.work.sheets[small], &s.work.sheets[big]
	f := s.format
	n.starved = false
	if n.over == nil {
		n.over = newBitset(f.Pages[big].Entries())
	}
	clear(n.over)
	bigs.live.each(func(at int) {
		page := bigs.page(at)
		for i, q := range page {
			if q == 0 {
				continue
			}
			page[i] = s.entry(q, f.Pages[big].Span())
			if i := at*pageEntries + i; f.covers(q) {
				n.over.set(i, true)
				s.cover(i, q, bigs.entries[i])
			}
		}
	})
	smalls.live.each(func(at int) {
		page := smalls.page(at)
		for i, q := range page {
			if q != 0 {
				page[i] = s.entry(q, SmallPage)
			}
		}
	})
	for part := range n.have {
		s.reserveAll(n, part)
		s.affordAll(n, part)
	}
	for _, maps := range [...]bool{false, true} {
		for _, va := range n.places {
			for part := range n.have {
				s.diff(va, &f.Pages[part], n.have[part], s.work.sheets[part].table(), maps)
			}
		}
	}
	for part := range n.have {
		now := s.work.sheets[part].table()
		for p, page := range n.have[part] {
			if now.has(p) {
				copy(page, now[p])
			} else {
				s.forget(n, part, p)
			}
		}
	}
}

// reserveAll makes room for the pages of entries that are not empty. Those for which there is none are
// left out.
func (s *Shadow) reserveAll(n *node, part int) {
	t := &s.work.sheets[part]
	t.live.each(func(p int) {
		page := t.page(p)
		if sameEntries(page, zeroEntries[:len(page)]) {
			t.live &^= 1 << p
		} else if !s.reserve(n, part, p) {
			clear(page)
			t.live &^= 1 << p
		}
	})
}

// affordAll pays for the entries that the card does not have yet.
func (s *Shadow) affordAll(n *node, part int) {
	t := &s.work.sheets[part]
	t.live.each(func(p int) {
		page := t.page(p)
		was := n.have[part].page(p, len(page))
		if sameEntries(was, page) {
			return
		}
		for i, q := range page {
			if q != was[i] {
				page[i] = s.afford(n, q)
			}
		}
	})
}

// cover replaces the guest's small entries under a big page: with the page's parts, if its memory
// is not contiguous on the card. It takes precedence even when it is missing.
func (s *Shadow) cover(i int, guest, word uint64) {
	smalls, n := &s.work.sheets[small], s.format.group
	group := smalls.entries[i*n : (i+1)*n]
	if guest&s.format.valid == 0 || word != 0 {
		clear(group)
		return
	}
	smalls.live.add(i * n / pageEntries)
	for k := range group {
		group[k] = s.format.part(guest, uint64(k)*SmallPage)
	}
}

// part translates one small page of a big entry.
func (s *Shadow) part(q uint64, i int) uint64 {
	return s.entry(s.format.part(q, uint64(i)*SmallPage), SmallPage)
}

// splitLarge enters the large page that the node stands for as the guest's big pages.
func (s *Shadow) splitLarge(n *node) {
	if n.key.page == 0 {
		return
	}
	l, into := &s.format.Pages[big], &s.work.sheets[big]
	for i := range l.Entries() {
		into.live.add(i / pageEntries)
		into.entries[i] = s.format.part(n.key.page, uint64(i)<<l.Shift)
	}
}
