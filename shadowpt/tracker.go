package shadowpt

import "math/bits"

// Tracker keeps the shadows of one guest up to date at the cost of what changed.
// It remembers the guest's tables as they were when it last looked, and looks
// again only at pages that were written (see [Watch]), and at those that may
// change without anybody being told. [Shadow.Rebuild] is its slow twin: after
// Update the card's tables are what Rebuild would make of the same bytes.
//
// Its Watch may be used by any goroutine, the rest belongs to one at a time.
type Tracker struct {
	Watch
	Counts Counts // of Update; what a shadow takes is in its own

	guest Guest
	card  Card
	work  *Work
	// quota is how many bytes of tables may be followed; a table that does not fit
	// counts as not there. It bounds memory, and what one Update can take.
	quota, followed uint64

	shadows []*Shadow
	leaves  leafSet
	system  []*leaf // leaves that are in system memory

	// writers counts, by page of VRAM, the shadow entries that let engines write
	// it. What goes is taken off in Release: until the card has finished an
	// invalidate, it may go on using the entry.
	writers []uint32
	gone    []pageRun

	moved   [2]uint64 // bus addresses whose mapping changed: from, to
	again   []redo    // nodes to follow anew
	freed   bool      // there is more room since nodes starved
	rebuilt bool      // engines may write through entries that nobody counted
	left    bool      // a shadow has gone; its tables are free after the next Release

	scan  uint64   // the look that is under way, or was last
	late  []*leaf  // pages that came to be looked at while shadows were written
	batch []uint64 // scratch: pages to look at
	page  [SmallPage]byte
	diff  [pageEntries]change
	out   [2]burst // scratch: entries for the small and the big table
}

// change is an entry that is not what it was.
type change struct {
	i        int // on its page
	old, now uint64
}

type pageRun struct{ page, n uint64 }

// redo is a node to follow anew, or, without one, a directory.
type redo struct {
	s *Shadow
	n *node
}

// NewTracker makes a tracker for a guest with vram bytes of VRAM. It follows at
// most quota bytes of tables.
func NewTracker(g Guest, c Card, w *Work, vram, quota uint64) *Tracker {
	t := &Tracker{Watch: newWatch(vram), guest: g, card: c, work: w, quota: quota}
	t.writers, t.leaves = make([]uint32, t.pages), newLeafSet(t.pages)
	for i := range t.out {
		t.out[i].buf = make([]byte, 0, SmallPage)
	}
	return t
}

// Follow builds a shadow from what the guest's tables hold now, and keeps it up
// to date from then on. What Rebuild made before stays in use: a guest's shadows
// are followed all or not at all, and of those that have been rebuilt the card
// must finish an invalidate, with Release, before the next Update.
func (t *Tracker) Follow(s *Shadow) {
	s.tracker = t
	t.scan++
	t.rebuilt = t.rebuilt || len(s.nodes) > 0
	t.shadows = append(t.shadows, s)
	clear(s.at[:])
	t.followDir(s)
	t.settle()
	for k, n := range s.nodes {
		if !n.held {
			s.drop(k, n)
		}
	}
}

// Unfollow ends that. The shadow stays as it is.
func (t *Tracker) Unfollow(s *Shadow) {
	for i, o := range t.shadows {
		if o == s {
			t.shadows[i] = t.shadows[len(t.shadows)-1]
			t.shadows[len(t.shadows)-1] = nil
			t.shadows = t.shadows[:len(t.shadows)-1]
		}
	}
	for _, n := range s.nodes {
		t.unhold(n)
		n.tracked = tracked{}
	}
	t.letGo(&s.pages)
	clear(s.at[:])
	s.tracker, s.changed = nil, entrySet{}
	t.freed, t.left = true, true
}

// Moved tells that the memory behind n bytes of bus addresses at addr is another
// now, or has come, or has gone.
func (t *Tracker) Moved(addr, n uint64) {
	if t.moved[0] == t.moved[1] {
		t.moved = [2]uint64{addr, addr + n}
		return
	}
	t.moved = [2]uint64{min(t.moved[0], addr), max(t.moved[1], addr+n)}
}

// Release is called when the card has finished an invalidate that began after
// the last Update: entries that went can no longer be used.
func (t *Tracker) Release() {
	for _, r := range t.gone {
		for i := range r.n {
			t.writers[r.page+i]--
		}
	}
	t.gone = t.gone[:0]
	if t.rebuilt {
		t.Wrote(0, t.pages*SmallPage)
		t.rebuilt = false
	}
	t.freed, t.left = t.freed || t.left, false
	for _, s := range t.shadows {
		if len(s.retired) > 0 {
			s.Release()
			t.freed = true
		}
	}
}

// pass makes the changes of a page changes of one table that it is a part of.
func (t *Tracker) pass(r *leafRef, changes []change) {
	if r.n == nil {
		for _, c := range changes {
			r.s.changed.add(r.first + c.i)
		}
		return
	}
	size := uint64(SmallPage)
	if r.big {
		size = BigPage
	}
	for _, c := range changes {
		if c.i >= r.count {
			break
		}
		t.countWriters(c.now, size, 1)
		t.countWriters(c.old, size, -1)
		if (c.old|c.now)&valid != 0 {
			t.put(r, r.first+c.i, c.now)
		}
	}
	t.flush(r.s, r.n)
}

// countWriters counts the pages of VRAM that a guest's entry lets engines write,
// or, with -1, takes them off at the next Release.
func (t *Tracker) countWriters(q, size uint64, by int) {
	if q&writable != valid {
		return
	}
	first := addressOf(q) / SmallPage
	if first >= t.pages {
		return
	}
	n := min(size/SmallPage, t.pages-first)
	if by < 0 {
		if last := len(t.gone) - 1; last >= 0 && t.gone[last].page+t.gone[last].n == first {
			t.gone[last].n += n
			return
		}
		t.gone = append(t.gone, pageRun{first, n})
		return
	}
	for p := first; p < first+n; p++ {
		if t.writers[p]++; t.writers[p] == 1 && t.tables.has(p) {
			t.loose.add(p)
		}
	}
}

// translateAgain looks at the entries that name bus addresses in a range, and at
// the tables that lie there.
func (t *Tracker) translateAgain(from, to uint64) {
	for l := range t.leaves.all() {
		if l.system == 0 {
			continue
		}
		t.Counts.Examined += pageEntries
		for i := range l.refs {
			if l.refs[i].n != nil {
				t.translateRef(l, &l.refs[i], from, to)
			}
		}
	}
	for _, s := range t.shadows {
		if s.space.Target.System() && s.space.Dir < to && s.space.Dir+DirSize > from {
			t.again = append(t.again, redo{s: s})
		}
		for k, n := range s.nodes {
			if k.small.lies(SmallTableSize, from, to) || k.big.lies(BigTableSize, from, to) {
				t.followAgain(s, n)
			}
		}
	}
}

// lies reports whether a table of at most n bytes lies in system memory in the
// range.
func (t Table) lies(n, from, to uint64) bool {
	return t.Present && t.Target.System() && t.Addr < to && t.Addr+n > from
}

func (t *Tracker) translateRef(l *leaf, r *leafRef, from, to uint64) {
	size := uint64(SmallPage)
	if r.big {
		size = BigPage
	}
	for i := range r.count {
		q := l.entry(i)
		if namesSystem(q) == 0 {
			continue
		}
		if addr := addressOf(q); addr < to && addr+size > from {
			t.put(r, r.first+i, q)
		}
	}
	t.flush(r.s, r.n)
}

// lost deals with a page of system memory that is no longer the guest's: a table
// counts whole or not at all.
func (t *Tracker) lost(l *leaf) {
	l.lost = true
	for i := range l.refs {
		r := &l.refs[i]
		if r.n == nil {
			t.again = append(t.again, redo{s: r.s})
			continue
		}
		t.followAgain(r.s, r.n)
	}
}

func (t *Tracker) followAgain(s *Shadow, n *node) {
	if n.held && !n.redo {
		n.redo = true
		t.again = append(t.again, redo{s, n})
	}
}

// feed tries the nodes again that there was no room for.
func (t *Tracker) feed() {
	t.freed = false
	for _, s := range t.shadows {
		for _, n := range s.nodes {
			if n.starved {
				t.followAgain(s, n)
			}
		}
	}
}

// settle follows what has to be followed anew, and writes the directory entries
// that changed, until there is nothing more to look at.
func (t *Tracker) settle() {
	for more := true; more; more = t.lookLate() {
		t.followAnew()
		for _, s := range t.shadows {
			t.writeDir(s)
		}
	}
}

func (t *Tracker) followAnew() {
	for i := 0; i < len(t.again); i++ {
		switch r := t.again[i]; {
		case r.n == nil:
			t.letGo(&r.s.pages)
			t.followDir(r.s)
		case r.n.held:
			t.unhold(r.n)
			t.hold(r.s, r.n)
			r.s.changed.addAll(&r.n.slots)
		}
		t.again[i].clear()
	}
	t.again = t.again[:0]
}

// lookLate looks at pages that a table was found to lie in, and that nobody looked at
// because only other shadows had them until now. It reports whether there were any.
func (t *Tracker) lookLate() bool {
	n := len(t.late)
	for _, l := range t.late {
		if t.leaves.get(l.key) == l {
			t.look(l)
		}
	}
	clear(t.late)
	t.late = t.late[:0]
	return n > 0
}

func (r *redo) clear() {
	if r.n != nil {
		r.n.redo = false
	}
	*r = redo{}
}

// writeDir brings the directory entries that changed up to date. Nodes that no
// entry names any more go.
func (t *Tracker) writeDir(s *Shadow) {
	orphans := false
	b := &t.out[0]
	for w, m := s.changed.take(0); w < setWords; w, m = s.changed.take(w + 1) {
		for ; m != 0; m &= m - 1 {
			i := w*64 + bits.TrailingZeros64(m)
			key, ok := keyOf(entryAt(s.pages, i))
			behind := s.behind(i)
			n := *behind
			if n != nil && (!ok || n.key != key) {
				n.slots.remove(i)
				n.links--
				orphans = orphans || n.links == 0
				n = nil
			}
			q := uint64(0)
			if ok {
				if n == nil {
					n = s.node(key)
					n.slots.add(i)
					n.links++
				}
				if !n.held {
					n.key = key
					t.hold(s, n)
				}
				q = n.pde(key)
			}
			*behind = n
			t.add(s, b, &s.dir, i, q)
		}
	}
	t.write(s, b, &s.dir)
	if !orphans {
		return
	}
	for k, n := range s.nodes {
		if n.links == 0 {
			t.unhold(n)
			s.drop(k, n)
			t.freed = true
		}
	}
}
