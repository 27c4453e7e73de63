package shadowpt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Update looks at everything that may have changed and brings the shadows up to
// date.
func (t *Tracker) Update() {
	t.scan++
	t.Counts.Scans++
	// A page may be in both sets and is looked at once: after it was taken out of both,
	// and whole.
	t.batch = t.dirty.take(t.batch[:0])
	dirty := len(t.batch)
	t.batch = t.loose.take(t.batch)
	for _, p := range t.batch[dirty:] {
		t.stayLoose(p)
		t.lookAt(p, true)
	}
	for _, p := range t.batch[:dirty] {
		t.lookAt(p, false)
	}
	for _, l := range t.system {
		t.look(l)
	}
	t.bring()
}

// UpdateOnly is Update for some shadows, those that an invalidate names: it looks at
// no pages but those that their tables are in. The others stay what they were.
func (t *Tracker) UpdateOnly(which ...*Shadow) {
	t.scan++
	t.Counts.Scans++
	for _, s := range which {
		t.lookAtAll(s.pages)
		for _, n := range s.nodes {
			t.lookAtAll(n.guestSmall)
			t.lookAtAll(n.guestBig)
		}
	}
	t.bring()
}

// lookAtAll looks at the pages of one table that may have changed. In VRAM they are
// neighbours, so that most are passed over 64 at a time.
func (t *Tracker) lookAtAll(pages []held) {
	for i := 0; i < len(pages); i++ {
		l := pages[i].l
		if !l.key.system {
			word := (t.dirty.word(l.key.page) | t.loose.word(l.key.page)) >> (l.key.page % 64)
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
			t.look(l)
		}
	}
}

// due reports whether a page may have changed since it was last looked at, and takes
// note that it is looked at now, and whether as a whole.
func (t *Tracker) due(l *leaf) bool {
	if l.scan == t.scan {
		return false
	}
	l.scan = t.scan
	if l.key.system {
		return true
	}
	p := l.key.page
	dirty, loose := t.dirty.has(p), t.loose.has(p)
	if dirty {
		t.dirty.remove(p)
	}
	if loose {
		t.loose.remove(p)
		t.stayLoose(p)
	}
	l.whole = loose
	return dirty || loose
}

// stayLoose puts a page back that was taken out of the set, if it is to be looked at
// again. First out of the set, then a look at why it was in it: Untrapped does the
// same the other way round, and one of the two sees the other.
func (t *Tracker) stayLoose(page uint64) {
	if t.tables.has(page) && t.isLoose(page) {
		t.loose.add(page)
	}
}

// bring makes the shadows what the pages that were looked at say.
func (t *Tracker) bring() {
	if t.moved[0] != t.moved[1] {
		t.translateAgain(t.moved[0], t.moved[1])
		t.moved = [2]uint64{}
	}
	if t.freed {
		t.feed()
	}
	t.settle()
}

func (t *Tracker) isLoose(page uint64) bool { return t.direct.has(page) || t.writers[page] > 0 }

func (t *Tracker) lookAt(page uint64, whole bool) {
	if l := t.leaves.inVRAM(page); l != nil && l.scan != t.scan {
		l.whole = whole
		t.look(l)
	}
}

// look compares a page with what it was, and passes on what changed. Most pages did
// not: they are compared where they are. One that did is read once, and entries are
// taken from that copy alone, for the guest may go on writing. Of a page that is only
// written with somebody being told, no more is looked at than from the first line that
// was written to the last.
func (t *Tracker) look(l *leaf) {
	l.scan = t.scan
	from, to := t.span(l)
	if from == to {
		return
	}
	target, addr, p := l.key.target(), l.key.page*SmallPage+uint64(from), t.page[from:to]
	t.Counts.Compared += uint64(len(p))
	if t.guest.SameTable(target, addr, l.bytes()[from:to]) {
		return
	}
	if !t.guest.ReadTable(target, addr, p) {
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

// span is the bytes of a page that may have changed.
func (t *Tracker) span(l *leaf) (from, to int) {
	if l.key.system {
		return 0, SmallPage
	}
	lines := t.written(l.key.page)
	if l.whole {
		return 0, SmallPage
	}
	if lines == 0 { // they were seen by the last look, before their page was told of
		return 0, 0
	}
	return bits.TrailingZeros64(lines) * lineSize, (64 - bits.LeadingZeros64(lines)) * lineSize
}

// compareAt is how many bytes are compared before entries are looked at.
const compareAt = 256

// differences notes the entries of a piece of the page that are not what they were,
// and takes them over. The first n are known.
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
			l.system += namesSystem(now) - namesSystem(old)
			binary.LittleEndian.PutUint64(l.seen[i*8:], now)
		}
	}
	return n
}
