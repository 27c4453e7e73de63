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
	// A page may be in both sets and is looked at once: after it was taken out of both.
	t.batch = t.loose.take(t.dirty.take(t.batch[:0]))
	for _, p := range t.batch {
		t.stayLoose(p)
		t.lookAt(p)
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
// note that it is looked at now.
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

func (t *Tracker) lookAt(page uint64) {
	if l := t.leaves[leafKey{page: page}]; l != nil && l.scan != t.scan {
		t.look(l)
	}
}

// look compares a page with what it was, and passes on what changed. Most pages did
// not: they are compared where they are. One that did is read once, and entries are
// taken from that copy alone, for the guest may go on writing.
func (t *Tracker) look(l *leaf) {
	l.scan = t.scan
	target, addr, p := l.key.target(), l.key.page*SmallPage, t.page[:]
	if t.guest.SameTable(target, addr, l.bytes()) {
		t.Counts.Compared += SmallPage
		return
	}
	if !t.guest.ReadTable(target, addr, p) {
		t.lost(l)
		return
	}
	t.Counts.Compared += SmallPage
	n := 0
	for at := 0; at < SmallPage; at += compareAt {
		if !bytes.Equal(p[at:at+compareAt], l.bytes()[at:at+compareAt]) {
			n = t.differences(l, p, at/8, n)
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

// compareAt is how many bytes are compared before entries are looked at.
const compareAt = 256

// differences notes the entries from i on, a piece of the page, that are not what
// they were, and takes them over. The first n are known.
func (t *Tracker) differences(l *leaf, p []byte, i, n int) int {
	if l.seen == nil {
		l.seen = new([SmallPage]byte)
	}
	t.Counts.Examined += compareAt / 8
	for end := i + compareAt/8; i < end; i++ {
		old, now := l.entry(i), binary.LittleEndian.Uint64(p[i*8:])
		if old != now {
			t.diff[n] = change{i, old, now}
			n++
			l.system += namesSystem(now) - namesSystem(old)
			binary.LittleEndian.PutUint64(l.seen[i*8:], now)
		}
	}
	return n
}
