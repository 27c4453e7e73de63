package shadowpt

import "encoding/binary"

// burst collects adjacent entries of one table for one write to the card.
type burst struct {
	first int
	buf   []byte
}

// add appends an entry. If it is not adjacent, or the burst is full, it writes the burst
// first.
func (t *Tracker) add(s *Shadow, b *burst, table *cardTable, i int, q uint64) {
	if len(b.buf) == cap(b.buf) || i != b.first+len(b.buf)/8 {
		t.write(s, b, table)
		b.first = i
	}
	b.buf = binary.LittleEndian.AppendUint64(b.buf, q)
}

// write writes the entries into the table. Without a table they are all zero, or there
// was no room for one.
func (t *Tracker) write(s *Shadow, b *burst, table *cardTable) {
	if n := len(b.buf) / 8; n > 0 && table.addr != 0 {
		t.card.WriteTable(table.addr+uint64(b.first)*8, b.buf)
		table.used.add(b.first / pageEntries)
		table.used.add((b.first + n - 1) / pageEntries)
		s.Counts.Rewritten += uint64(n)
	}
	b.buf = b.buf[:0]
}

func (t *Tracker) flush(s *Shadow, n *node) {
	t.write(s, &t.out[0], &n.small)
	t.write(s, &t.out[1], &n.big)
}

// put translates entry i of a guest's table for the card.
func (t *Tracker) put(r *leafRef, i int, q uint64) {
	if r.big {
		t.putBig(r.s, r.n, i, q)
		return
	}
	if !r.n.isOver(uint64(i / GroupEntries)) {
		t.putSmall(r.s, r.n, i, r.s.entry(q, SmallPage))
	}
}

func (t *Tracker) putSmall(s *Shadow, n *node, i int, q uint64) {
	if t.ready(s, n, &n.small, q) {
		t.add(s, &t.out[0], &n.small, i, q)
	}
}

// putBig enters a big page, and the small pages that it replaces or uncovers.
func (t *Tracker) putBig(s *Shadow, n *node, i int, guest uint64) {
	q := s.entry(guest, BigPage)
	if t.ready(s, n, &n.big, q) {
		t.add(s, &t.out[1], &n.big, i, q)
	}
	was := n.isOver(uint64(i))
	over := guest&valid != 0 && (q == 0 || n.big.addr == 0)
	n.setOver(uint64(i), over)
	if !was && !over {
		return
	}
	pte := DecodePTE(guest)
	for k := range GroupEntries {
		small := uint64(0)
		switch {
		case !over:
			small = s.entry(entryAt(n.guestSmall, i*GroupEntries+k), SmallPage)
		case q == 0:
			small = s.part(pte, k)
		}
		t.putSmall(s, n, i*GroupEntries+k, small)
	}
}

// ready reports whether there is a table to write q to. It allocates one for a nonzero q,
// which changes the node's directory entries.
func (t *Tracker) ready(s *Shadow, n *node, table *cardTable, q uint64) bool {
	if table.addr != 0 {
		return true
	}
	if q == 0 || n.starved || !s.alloc(n, table) {
		return false
	}
	s.changed.addAll(&n.slots)
	return true
}

// followDir starts following a shadow's directory. Every entry that is set, or may be set
// on the card, counts as changed.
func (t *Tracker) followDir(s *Shadow) {
	s.pages = t.take(s, nil, Table{Present: true, Target: s.space.Target, Addr: s.space.Dir}, false, DirEntries)
	for at := range s.at {
		used := s.dir.used>>at&1 != 0
		if !used && (s.pages == nil || s.pages[at].l.seen == nil) {
			continue
		}
		s.Counts.Examined += pageEntries
		for i := at * pageEntries; i < (at+1)*pageEntries; i++ {
			if used || entryAt(s.pages, i) != 0 {
				s.changed.add(i)
			}
		}
	}
}

// behind returns the slot of a directory entry's node.
func (s *Shadow) behind(i int) **node {
	at := &s.at[i/pageEntries]
	if *at == nil {
		*at = make([]*node, pageEntries)
	}
	return &(*at)[i%pageEntries]
}

// hold starts following a node's tables and builds the card's from them.
func (t *Tracker) hold(s *Shadow, n *node) {
	n.held = true
	small, big := SmallEntries>>n.key.size, BigEntries>>n.key.size
	n.guestSmall = t.take(s, n, n.key.small, false, small)
	n.guestBig = t.take(s, n, n.key.big, true, big)
	cut := n.starved
	t.load(s, n.guestSmall, &s.work.small, small, SmallPage)
	t.load(s, n.guestBig, &s.work.big, big, BigPage)
	s.compose(n)
	n.starved = n.starved || cut
}

// load copies n entries of a table as last seen, and counts the pages that they let engines
// write.
func (t *Tracker) load(s *Shadow, pages []held, into *sheet, n int, size uint64) {
	into.clear()
	for i := range pages {
		l := pages[i].l
		if l.seen == nil {
			continue
		}
		part := l.seen[:min(pageEntries, n-i*pageEntries)*8]
		s.Counts.Examined += uint64(len(part) / 8)
		if into.take(i, part) {
			for _, q := range into.page(i) {
				t.countWriters(q, size, 1)
			}
		}
	}
}

// unhold stops following a node's tables. The card's tables stay as they are.
func (t *Tracker) unhold(n *node) {
	if !n.held {
		return
	}
	n.held, n.starved = false, false
	for _, o := range []struct {
		pages []held
		n     int
		size  uint64
	}{{n.guestSmall, SmallEntries >> n.key.size, SmallPage}, {n.guestBig, BigEntries >> n.key.size, BigPage}} {
		for i := range o.pages {
			l := o.pages[i].l
			if l.seen == nil {
				continue
			}
			for k := range min(pageEntries, o.n-i*pageEntries) {
				t.countWriters(l.entry(k), o.size, -1)
			}
		}
	}
	t.unfollow(&n.guestSmall)
	t.unfollow(&n.guestBig)
}

// take starts following the pages of a table. It returns nil if the table is absent,
// outside the guest's memory, or over the quota.
func (t *Tracker) take(s *Shadow, n *node, table Table, big bool, entries int) []held {
	if !table.Present {
		return nil
	}
	size := uint64(entries) * 8
	if t.followed+size > t.quota {
		s.Counts.Cut++
		if n != nil {
			n.starved = true
		}
		return nil
	}
	pages := make([]held, 0, (size+SmallPage-1)/SmallPage)
	t.followed += size
	for i := range cap(pages) {
		l := t.leaf(table.Target, table.Addr+uint64(i)*SmallPage)
		if l == nil {
			s.Counts.Unread++
			t.unfollow(&pages)
			t.followed -= size - uint64(i)*SmallPage
			return nil
		}
		r := leafRef{s: s, n: n, big: big, first: i * pageEntries, count: min(pageEntries, entries-i*pageEntries)}
		pages = append(pages, l.addRef(r))
	}
	return pages
}

// leaf returns the followed page at addr, nil if it is not the guest's.
func (t *Tracker) leaf(target Target, addr uint64) *leaf {
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
		l.fill(t.page[:])
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
		r := &h.l.refs[h.at]
		t.followed -= uint64(r.count) * 8
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
