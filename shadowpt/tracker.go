package shadowpt

import "math/bits"

// Tracker updates the shadows of one guest at a cost proportional to the changes. It keeps a
// copy of the guest's tables, and examines again only pages that were written (see [Watch])
// and pages that may change without a trap. After Update the card's tables equal what
// [Shadow.Rebuild] would build from the same bytes.
//
// Its Watch may be used by any goroutine; the rest belongs to one at a time.
type Tracker struct {
	Watch
	Counts *Counts // of its Work

	guest Guest
	card  Card
	work  *Work
	// quota is how many bytes of tables may be followed; a table that does not fit counts
	// as absent. It bounds memory and the cost of one Update.
	quota, followed uint64

	shadows []*Shadow
	leaves  map[leafKey]*leaf

	// writers counts, by page of VRAM, the shadow entries that let engines write it.
	// Removed entries are subtracted in Release: until the card has finished an
	// invalidate it may still use them.
	writers        []uint32
	removedWriters []pageRun

	remapped [2]uint64 // bus addresses whose mapping changed: from, to
	again    []redo    // nodes to follow again
	freed    bool      // room became free since nodes starved
	rebuilt  bool      // engines may write through entries not counted in writers
	left     bool      // a shadow was unfollowed; its tables are free after the next Release

	scan uint64  // number of the current or last look
	late []*leaf // pages found to need a look while shadows were written
	page [SmallPage]byte
	diff [pageEntries]change
	out  [2]burst // scratch: entries for the small and the big table
}

// change is a changed entry.
type change struct {
	i        int // on its page
	old, now uint64
}

type pageRun struct{ page, n uint64 }

// redo is a node, or without one a directory, to follow again.
type redo struct {
	s *Shadow
	n *node
}

// NewTracker returns a tracker for a guest with vram bytes of VRAM that follows at most
// quota bytes of tables.
func NewTracker(g Guest, c Card, w *Work, vram, quota uint64) *Tracker {
	t := &Tracker{Watch: newWatch(vram), Counts: &w.Counts, guest: g, card: c, work: w, quota: quota}
	t.writers, t.leaves = make([]uint32, t.pages), make(map[leafKey]*leaf)
	for i := range t.out {
		t.out[i].buf = make([]byte, 0, SmallPage)
	}
	return t
}

// Follow builds a shadow from the guest's tables and updates it from then on. A guest's
// shadows are followed all or not at all. Tables that Rebuild built before stay in use: the
// card must finish an invalidate, with Release, before the next Update.
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

// Unfollow ends Follow. The shadow stays as it is.
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
	t.unfollow(&s.pages)
	clear(s.at[:])
	s.tracker, s.changed = nil, entrySet{}
	t.freed, t.left = true, true
}

// Remapped reports that the mapping of n bytes of bus addresses at addr changed.
func (t *Tracker) Remapped(addr, n uint64) {
	if t.remapped[0] == t.remapped[1] {
		t.remapped = [2]uint64{addr, addr + n}
		return
	}
	t.remapped = [2]uint64{min(t.remapped[0], addr), max(t.remapped[1], addr+n)}
}

// Release is called when the card has finished an invalidate that began after the last
// Update: removed entries can no longer be used.
func (t *Tracker) Release() {
	for _, r := range t.removedWriters {
		for p := r.page; p < r.page+r.n; p++ {
			if t.writers[p]--; t.writers[p] == 0 {
				t.engines.remove(p)
				t.mark(p, allLines) // for a last comparison
			}
		}
	}
	t.removedWriters = t.removedWriters[:0]
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

// pass applies a page's changes to one of its tables.
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

// countWriters counts the pages of VRAM that a guest's entry lets engines write. With -1 it
// subtracts them at the next Release.
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
		if last := len(t.removedWriters) - 1; last >= 0 && t.removedWriters[last].page+t.removedWriters[last].n == first {
			t.removedWriters[last].n += n
			return
		}
		t.removedWriters = append(t.removedWriters, pageRun{first, n})
		return
	}
	for p := first; p < first+n; p++ {
		if t.writers[p]++; t.writers[p] == 1 {
			t.engines.add(p)
		}
	}
}

// translateAgain translates the entries that name bus addresses in a range again, and
// follows the tables in that range again.
func (t *Tracker) translateAgain(from, to uint64) {
	for _, l := range t.leaves {
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

// lies reports whether a table of at most n bytes overlaps the range of system memory.
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

// lost handles a page of system memory that is no longer the guest's: its tables are
// followed again, and then count as absent.
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

// feed retries the nodes for which there was no room.
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

// settle follows what must be followed again and writes changed directory entries, until
// nothing is left.
func (t *Tracker) settle() {
	for more := true; more; more = t.updateLate() {
		t.refollow()
		for _, s := range t.shadows {
			t.writeDir(s)
		}
	}
}

func (t *Tracker) refollow() {
	for i := 0; i < len(t.again); i++ {
		switch r := t.again[i]; {
		case r.n == nil:
			t.unfollow(&r.s.pages)
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

// updateLate examines changed pages that Update skipped, because only other shadows used them, and
// that a new table also uses. It reports whether there were any.
func (t *Tracker) updateLate() bool {
	n := len(t.late)
	for _, l := range t.late {
		if t.leaves[l.key] == l {
			t.compare(l)
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

// writeDir updates the changed directory entries and drops nodes that no entry names.
func (t *Tracker) writeDir(s *Shadow) {
	if s.changed == noEntries {
		return
	}
	orphans := false
	b := &t.out[0]
	for w, m := range &s.changed {
		s.changed[w] = 0
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
