package shadowpt

// Tracker updates the shadows of one guest at a cost proportional to the changes. It keeps a
// copy of the guest's tables, and examines again only pages that were written (see [Watch])
// and pages that may change without a trap. After Update the card has what [Shadow.Rebuild] would
// give it for the same bytes.
//
// Its Watch may be used by any goroutine; the rest belongs to one at a time.
type Tracker struct {
	Watch
	Counts *Counts // of its Work

	format *Format
	guest  Guest
	work   *Work
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

	scan  uint64  // number of the current or last look
	late  []*leaf // pages found to need a look while shadows were written
	parts []Part  // to compare; empty between two looks
	page  [SmallPage]byte
	diff  [pageEntries]change
}

// change is a changed entry.
type change struct {
	i        int // on its page
	old, now uint64
}

type pageRun struct{ page, n uint64 }

// redo is a node to follow again.
type redo struct {
	s *Shadow
	n *node
}

// NewTracker returns a tracker for a guest with vram bytes of VRAM that follows at most
// quota bytes of tables.
func NewTracker(g Guest, w *Work, vram, quota uint64) *Tracker {
	t := &Tracker{Watch: newWatch(vram), Counts: &w.Counts, format: w.format, guest: g, work: w, quota: quota}
	t.writers, t.leaves = make([]uint32, t.pages), make(map[leafKey]*leaf)
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
	s.lacking = nil
	s.retry()
	t.hold(s, s.root)
	t.settle()
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
		t.unhold(s, n)
		n.tracked = tracked{}
	}
	t.unhold(s, s.root)
	s.root.tracked = tracked{}
	clear(s.dirty[:])
	s.tracker = nil
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
		s.lacking = nil
		t.freed = t.freed || t.work.unmapped && len(s.refused) > 0
	}
	t.work.unmapped = false
}

// pass applies a page's changes to one of its tables.
func (t *Tracker) pass(r *leafRef, changes []change) {
	size := t.pageSize(r.n, r.part)
	dir := r.s.isDir(r.n)
	for _, c := range changes {
		k := c.i - r.base
		if k < 0 {
			continue
		}
		if k >= r.count {
			break
		}
		i := r.first + k
		if dir {
			i /= int(t.format.Dirs[r.n.key.level].Words)
			r.s.mark(r.n, i)
			if k%2 != 0 {
				continue // the second word names no page
			}
		}
		if size == 0 {
			continue
		}
		t.countWriters(c.now, size, 1)
		t.countWriters(c.old, size, -1)
		if !dir && (t.format.covers(c.old) || t.format.covers(c.now)) {
			t.put(r, i, c.now)
		}
	}
}

// pageSize returns the size of the pages that entries of a table may be, 0 if none may.
func (t *Tracker) pageSize(n *node, part int) uint64 {
	if int(n.key.level) == len(t.format.Dirs) {
		return t.format.Pages[part].Span()
	}
	if l := &t.format.Dirs[n.key.level]; l.dir.pages {
		return l.Span()
	}
	return 0
}

// countWriters counts the pages of VRAM that a guest's entry lets engines write. With -1 it
// subtracts them at the next Release.
func (t *Tracker) countWriters(q, size uint64, by int) {
	if q&t.format.writable != t.format.valid {
		return
	}
	first := t.format.addressOf(q) / SmallPage
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
			t.translateRef(l, &l.refs[i], from, to)
		}
	}
	for _, s := range t.shadows {
		t.followMoved(s, s.root, from, to)
		for _, n := range s.nodes {
			t.followMoved(s, n, from, to)
		}
	}
}

// followMoved follows a node again if one of its tables, or the page that it splits, lies in the
// range of bus addresses.
func (t *Tracker) followMoved(s *Shadow, n *node, from, to uint64) {
	moved := t.names(n.key.page, t.format.last().Span(), from, to)
	for part := range n.guest {
		g := n.table(part)
		n := uint64(s.words(n, part)) * 8
		moved = moved || g.Present && g.Target.System() && g.Addr < to && g.Addr+n > from
	}
	if moved {
		t.followAgain(s, n)
	}
}

// names reports whether the entry of a page names bus addresses in the range.
func (t *Tracker) names(q, size, from, to uint64) bool {
	addr := t.format.addressOf(q)
	return t.format.namesSystem(q) != 0 && addr < to && addr+size > from
}

func (t *Tracker) translateRef(l *leaf, r *leafRef, from, to uint64) {
	size := t.pageSize(r.n, r.part)
	if size == 0 {
		return
	}
	dir, step := r.s.isDir(r.n), 1
	if dir {
		step = int(t.format.Dirs[r.n.key.level].Words)
	}
	for i := 0; i < r.count; i += step {
		q := l.entry(r.base + i)
		switch {
		case !t.names(q, size, from, to):
		case dir:
			r.s.mark(r.n, (r.first+i)/step)
		default:
			t.put(r, r.first+i, q)
		}
	}
}

// lost handles a page of system memory that is no longer the guest's: its tables are
// followed again, and then count as absent.
func (t *Tracker) lost(l *leaf) {
	l.lost = true
	for i := range l.refs {
		t.followAgain(l.refs[i].s, l.refs[i].n)
	}
}

func (t *Tracker) followAgain(s *Shadow, n *node) {
	if n.held && !n.redo {
		n.redo = true
		t.again = append(t.again, redo{s, n})
	}
}

// feed retries the nodes and the pages for which there was no room.
func (t *Tracker) feed() {
	t.freed, t.work.cut = false, false
	for _, s := range t.shadows {
		s.retry()
		if s.root.starved {
			t.followAgain(s, s.root)
		}
		for _, n := range s.nodes {
			if n.starved {
				t.followAgain(s, n)
			}
		}
	}
}

// settle follows what must be followed again and changed directory entries, until nothing is left.
func (t *Tracker) settle() {
	followed, placed, nodes := t.followed, t.work.placed, t.work.nodes
	t.work.full = false
	for more := true; more; more = t.updateLate() {
		t.refollow()
		for _, s := range t.shadows {
			t.writeDirs(s)
		}
	}
	t.work.out.flush()
	t.freed = t.freed || t.followed < followed || t.work.placed < placed || t.work.nodes < nodes
}

func (t *Tracker) refollow() {
	for i := 0; i < len(t.again); i++ {
		if r := t.again[i]; r.n.held {
			t.unhold(r.s, r.n)
			t.hold(r.s, r.n)
		}
		t.again[i].n.redo = false
		t.again[i] = redo{}
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
	t.flush()
	clear(t.late)
	t.late = t.late[:0]
	return n > 0
}
