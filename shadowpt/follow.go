package shadowpt

// put translates entry i of a guest's table for the card.
func (t *Tracker) put(r *leafRef, i int, q uint64) {
	if t.work.Left == 0 {
		t.putNothing(r, i)
		return
	}
	if r.part == big {
		t.putBig(r.s, r.n, i, q)
		return
	}
	if !r.n.over.has(i >> t.format.groupUp) {
		r.s.set(r.n, small, i, r.s.entry(q, SmallPage))
	}
}

// putNothing unmaps the pages of an entry. They are left out.
func (t *Tracker) putNothing(r *leafRef, i int) {
	r.s.set(r.n, r.part, i, 0)
	for k := 0; k < t.format.group && r.part == big; k++ {
		r.s.set(r.n, small, i*t.format.group+k, 0)
	}
	t.work.cut = true
	r.s.leaveOut(r.n)
}

// putBig enters a big page, and the small pages that it replaces or uncovers. What goes is
// unmapped first.
func (t *Tracker) putBig(s *Shadow, n *node, i int, guest uint64) {
	f := t.format
	q := s.entry(guest, f.Pages[big].Span())
	was, over := n.over.has(i), f.covers(guest)
	n.over.set(i, over)
	if q == 0 {
		s.set(n, big, i, 0)
	}
	for k := 0; k < f.group && (was || over); k++ {
		word := uint64(0)
		switch {
		case !over:
			word = s.entry(wordAt(n.guest[small], i*f.group+k), SmallPage)
		case q == 0:
			word = s.part(guest, k)
		}
		s.set(n, small, i*f.group+k, word)
	}
	if q != 0 {
		s.set(n, big, i, q)
	}
}

// hold starts following a node's tables. It builds the node from them, or marks the entries of
// a directory as changed.
func (t *Tracker) hold(s *Shadow, n *node) {
	n.held = true
	if s.isDir(n) {
		t.holdDir(s, n)
		return
	}
	for part := range n.guest {
		n.guest[part] = t.take(s, n, part)
	}
	cut := n.starved
	t.load(s, n, small)
	t.load(s, n, big)
	s.splitLarge(n)
	s.compose(n)
	n.starved = n.starved || cut
}

// holdDir marks every entry that is set, or may be set on the card.
func (t *Tracker) holdDir(s *Shadow, n *node) {
	level := &t.format.Dirs[n.key.level]
	if n.changed == nil {
		n.changed = newBitset(level.Entries())
	}
	n.guest[small] = t.take(s, n, small)
	t.count(s, n, small, 1)
	words, step := s.words(n, small), int(level.Words)
	for from := 0; from < words; from += pageEntries {
		at := from / pageEntries
		used := n.used(from / step / pageEntries)
		if !used && (n.guest[small] == nil || n.guest[small][at].l.seen == nil) {
			continue
		}
		end := min(from+pageEntries, words)
		s.Counts.Examined += uint64(end - from)
		for i := from; i < end; i += step {
			if used || t.words(n, i/step) != (Words{}) {
				s.mark(n, i/step)
			}
		}
	}
}

// words returns the guest's entry i of a directory.
func (t *Tracker) words(n *node, i int) (w Words) {
	step := int(t.format.Dirs[n.key.level].Words)
	for k := range w[:step] {
		w[k] = wordAt(n.guest[small], i*step+k)
	}
	return w
}

// load copies the entries of a table as last seen, and counts the pages that they let engines
// write.
func (t *Tracker) load(s *Shadow, n *node, part int) {
	into := &s.work.sheets[part]
	into.clear()
	for i, h := range n.guest[part] {
		r := &h.l.refs[h.at]
		if h.l.seen == nil {
			continue
		}
		s.Counts.Examined += uint64(r.count)
		if into.take(i, h.l.seen[r.base*8:(r.base+r.count)*8]) {
			for _, q := range into.page(i) {
				t.countWriters(q, t.format.Pages[part].Span(), 1)
			}
		}
	}
}

// count counts the pages that a table's entries let engines write, or with -1 subtracts them.
func (t *Tracker) count(s *Shadow, n *node, part, by int) {
	size, step := t.pageSize(n, part), 1
	if size == 0 {
		return
	}
	if s.isDir(n) {
		step = int(t.format.Dirs[n.key.level].Words)
	}
	for _, h := range n.guest[part] {
		if h.l.seen == nil {
			continue
		}
		for k := 0; k < h.l.refs[h.at].count; k += step {
			t.countWriters(h.l.entry(h.base+k), size, by)
		}
	}
}

// unhold stops following a node's tables. What the card has stays.
func (t *Tracker) unhold(s *Shadow, n *node) {
	if !n.held {
		return
	}
	n.held, n.starved = false, false
	for part := range n.guest {
		t.count(s, n, part, -1)
		t.unfollow(&n.guest[part])
	}
}

// take starts following the pages of a table. It returns nil if the table is absent,
// outside the guest's memory, or over the quota.
func (t *Tracker) take(s *Shadow, n *node, part int) []held {
	table, words := n.table(part), s.words(n, part)
	if !table.Present {
		return nil
	}
	base := int(table.Addr % SmallPage / 8) // not 0 only of a table in one page
	pages := make([]held, 0, (words+pageEntries-1)/pageEntries)
	size := uint64(cap(pages)) * SmallPage
	if t.followed+size > t.quota || !t.work.take(0) {
		s.leaveOut(n)
		return nil
	}
	t.followed += size
	for i := range cap(pages) {
		l := t.leaf(table.Target, table.Addr+uint64(i)*SmallPage)
		if l == nil {
			s.Counts.Unread++
			t.unfollow(&pages)
			t.followed -= size - uint64(i)*SmallPage
			return nil
		}
		first := i * pageEntries
		r := leafRef{s: s, n: n, part: part, base: base, first: first, count: min(pageEntries, words-first)}
		pages = append(pages, l.addRef(r))
	}
	return pages
}

// leaf returns the followed page at addr, nil if it is not the guest's.
func (t *Tracker) leaf(target Target, addr uint64) *leaf {
	addr &^= SmallPage - 1
	key := leafKey{addr / SmallPage, target.System()}
	switch l := t.leaves[key]; {
	case l == nil:
	case l.lost:
		return nil // its tables are about to be followed again
	default:
		if t.due(l) {
			t.late = append(t.late, l)
		}
		return l
	}
	if !key.system && (target != VRAM || key.page >= t.pages) {
		return nil
	}
	if !key.system {
		t.tables.add(key.page)
	}
	l := &leaf{key: key, scan: t.scan}
	switch {
	case t.guest.SameTable(key.target(), addr, zeroPage[:]): // most are empty
		t.Counts.Compared += SmallPage
	case t.guest.ReadTable(key.target(), addr, t.page[:]):
		l.fill(t.format, t.page[:])
	default:
		if !key.system {
			t.tables.remove(key.page)
		}
		return nil
	}
	t.leaves[key] = l
	return l
}

// unfollow stops following a table's pages.
func (t *Tracker) unfollow(pages *[]held) {
	for _, h := range *pages {
		t.followed -= SmallPage
		h.removeRef()
		if l := h.l; len(l.refs) == 0 {
			delete(t.leaves, l.key)
			if !l.key.system {
				t.tables.remove(l.key.page)
			}
		}
	}
	*pages = nil
}
