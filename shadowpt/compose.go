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

// group returns the n small entries that cover a big entry's range, for writing.
func (t *sheet) group(big, n int) []uint64 {
	t.live.add(big * n / pageEntries)
	return t.entries[big*n : (big+1)*n]
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

// compose translates the guest's entries in the shadow's Work and passes them on.
func (s *Shadow) compose(n *node) {
	smalls, bigs := &s.work.sheets[small], &s.work.sheets[big]
	f := s.format
	n.starved = false
	if n.over == nil {
		n.over = newBitset(f.Pages[big].Entries())
	}
	clear(n.over)
	smalls.live.each(func(at int) {
		page := smalls.page(at)
		for i, q := range page {
			if q != 0 {
				page[i] = s.entry(q, SmallPage)
			}
		}
	})
	bigs.live.each(func(at int) {
		page := bigs.page(at)
		for i, q := range page {
			if q == 0 {
				continue
			}
			page[i] = s.entry(q, f.Pages[big].Span())
			if i := at*pageEntries + i; q&f.valid != 0 && bigs.entries[i] == 0 {
				n.over.set(i, true)
				s.split(smalls.group(i, f.group), q)
			}
		}
	})
	if !s.out.fill(n, big, bigs) {
		n.mask(smalls, bigs, f.group)
	}
	s.out.fill(n, small, smalls)
}

// mask removes the small pages under big ones for which there was no room: a big page
// takes precedence even when it is missing.
func (n *node) mask(smalls, bigs *sheet, group int) {
	bigs.live.each(func(at int) {
		for i, q := range bigs.page(at) {
			if i := at*pageEntries + i; q != 0 {
				n.over.set(i, true)
				clear(smalls.group(i, group))
			}
		}
	})
}

// split enters a big page as small pages, because its memory is not contiguous on the card.
// They replace the guest's small pages there, as a valid big page does.
func (s *Shadow) split(small []uint64, q uint64) {
	for i := range small {
		small[i] = s.part(q, i)
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
