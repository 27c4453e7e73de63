package shadowpt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Update examines the pages of the tables of these shadows that may have changed, and updates the
// shadows.
func (t *Tracker) Update(which ...*Shadow) {
	t.scan++
	for _, s := range which {
		t.compareAll(s.root.guest[small])
		for _, n := range s.nodes {
			t.compareAll(n.guest[small])
			t.compareAll(n.guest[big])
		}
	}
	t.flush()
	t.apply()
}

// compareAll queues the pages of one table that may have changed. In VRAM they are adjacent, so it
// skips up to 64 at a time.
func (t *Tracker) compareAll(pages []held) {
	for i := 0; i < len(pages); i++ {
		l := pages[i].l
		if !l.key.system {
			word := t.mayDiffer(l.key.page) >> (l.key.page % 64)
			if word == 0 {
				i += 63 - int(l.key.page%64)
				continue
			}
			if i += bits.TrailingZeros64(word); i >= len(pages) {
				return
			}
			l = pages[i].l
		}
		if t.due(l) {
			t.compare(l)
		}
	}
}

// due reports whether a page is to be examined in this look: it may have changed, and was not
// examined yet.
func (t *Tracker) due(l *leaf) bool {
	if l.scan == t.scan {
		return false
	}
	l.scan = t.scan
	return l.key.system || t.mayDiffer(l.key.page)>>(l.key.page%64)&1 != 0
}

// apply updates the shadows from the examined pages.
func (t *Tracker) apply() {
	if t.remapped[0] != t.remapped[1] {
		t.translateAgain(t.remapped[0], t.remapped[1])
		t.remapped = [2]uint64{}
	}
	if t.freed || t.work.cut && t.work.Left > 0 {
		t.feed()
	}
	t.settle()
}

// compare queues a page for a comparison with its last content. If all writes were trapped,
// only the range of marked lines is compared. It takes the marks, so flush must follow in this
// look.
func (t *Tracker) compare(l *leaf) {
	from, to := t.span(l)
	if from == to {
		return
	}
	t.Counts.Compared += uint64(to - from)
	t.parts = append(t.parts, Part{Target: l.key.target(), Addr: l.key.page*SmallPage + uint64(from), Bytes: l.bytes()[from:to], leaf: l})
	if len(t.parts) == MaxParts {
		t.flush()
	}
}

// flush compares the queued pages, in place and in one call, because a call may take a lock.
func (t *Tracker) flush() {
	if len(t.parts) == 0 {
		return
	}
	t.guest.SameTables(t.parts)
	for i := range t.parts {
		if p := &t.parts[i]; !p.Same {
			t.changed(p)
		}
	}
	t.parts = t.parts[:0] // it keeps at most 64 pages that are followed no more
}

// changed applies the changes of a page. It is read once, and entries are taken only from that
// copy, because the guest may write concurrently.
func (t *Tracker) changed(part *Part) {
	l, from := part.leaf, int(part.Addr%SmallPage)
	to := from + len(part.Bytes)
	if !t.guest.ReadTable(part.Target, part.Addr, t.page[from:to]) {
		t.lost(l)
		return
	}
	n := 0
	for at := from; at < to; at += compareAt {
		if end := min(at+compareAt, to); !bytes.Equal(t.page[at:end], l.bytes()[at:end]) {
			n = t.differences(l, at/8, end/8, n)
		}
	}
	if n == 0 {
		return
	}
	t.Counts.Changed += uint64(n)
	for i := range l.refs {
		t.pass(&l.refs[i], t.diff[:n])
	}
}

// span returns the range of a page that may have changed.
func (t *Tracker) span(l *leaf) (from, to int) {
	if l.key.system {
		return 0, SmallPage
	}
	lines := t.written(l.key.page)
	if t.loose(l.key.page) {
		return 0, SmallPage
	}
	if lines == 0 { // the last look took them, or it was loose and will be marked
		return 0, 0
	}
	return bits.TrailingZeros64(lines) * lineSize, (64 - bits.LeadingZeros64(lines)) * lineSize
}

// compareAt is the number of bytes compared at a time before single entries.
const compareAt = 256

// differences records the changed entries of a part of the page, after the first n that
// are known.
func (t *Tracker) differences(l *leaf, i, end, n int) int {
	if l.seen == nil {
		l.seen = new([SmallPage]byte)
	}
	t.Counts.Examined += uint64(end - i)
	for ; i < end; i++ {
		old, now := l.entry(i), binary.LittleEndian.Uint64(t.page[i*8:])
		if old != now {
			t.diff[n] = change{i, old, now}
			n++
			l.system += t.format.namesSystem(now) - t.format.namesSystem(old)
			binary.LittleEndian.PutUint64(l.seen[i*8:], now)
		}
	}
	return n
}
