package shadowpt

import (
	"cmp"
	"slices"
)

// nodeKey is what a node is the shadow of.
type nodeKey struct {
	level      uint8 // of directories, or their number: tables of pages
	size       uint8 // the tables' length is shifted right by size
	big, small Table
	page       uint64 // entry of a larger page, in place of tables: it is split
}

// node is the shadow of a directory, or of the tables of one entry. It knows what the card has: the
// same at each of its places.
type node struct {
	key   nodeKey
	have  [2]table  // translated entries; of a directory: pages, in the second
	pages int       // of entries, in have
	kids  [][]*node // of a directory: what its entries name, by pages
	// links is how many entries name the node, and places where they lie in the address space. A
	// directory without places lends none.
	links  int
	places []uint64
	// placeAt is the index of each place, once one of many was removed.
	placeAt map[uint64]int

	over    bitset // big pages of the guest's that replace its small ones
	starved bool   // something was left out, because of a bound
	seen    bool   // in the build under way

	tracked
}

// table is the entries of a table, by pages. Those of a page that is nil are 0.
type table [][]uint64

func (t table) word(i int) uint64 {
	if p := i / pageEntries; p < len(t) && t[p] != nil {
		return t[p][i%pageEntries]
	}
	return 0
}

// page returns a page of entries, zeros if there are none.
func (t table) page(i, words int) []uint64 {
	if i < len(t) && t[i] != nil {
		return t[i]
	}
	return zeroEntries[:words]
}

func (t table) has(page int) bool { return page < len(t) && t[page] != nil }

var zeroEntries [pageEntries]uint64

// sameEntries compares pages of entries. That of whole ones is as fast as one of bytes.
func sameEntries(a, b []uint64) bool {
	if len(a) == pageEntries && len(b) == pageEntries {
		return *(*[pageEntries]uint64)(a) == *(*[pageEntries]uint64)(b)
	}
	return slices.Equal(a, b)
}

// reserve makes room for a page of a node's table, which each place of the node pays for. It reports
// whether there is some.
func (s *Shadow) reserve(n *node, part, page int) bool {
	t := &n.have[part]
	if t.has(page) {
		return true
	}
	w := s.work
	if cost := uint64(len(n.places)) * SmallPage; w.placed+cost <= w.quota {
		w.placed += cost
	} else {
		s.leaveOut(n)
		return false
	}
	l := s.tableLevel(n, part)
	if *t == nil {
		*t = make(table, (l.Entries()+pageEntries-1)/pageEntries)
	}
	(*t)[page] = make([]uint64, l.pageWords())
	n.pages++
	return true
}

// forget is the reverse of reserve.
func (s *Shadow) forget(n *node, part, page int) {
	if n.have[part].has(page) {
		n.have[part][page] = nil
		n.pages--
		s.work.placed -= uint64(len(n.places)) * SmallPage
	}
}

// pageWords is how many entries a page of a table has.
func (l *Level) pageWords() int { return min(l.Entries(), pageEntries) }

// tableLevel returns the level of a node's table.
func (s *Shadow) tableLevel(n *node, part int) *Level {
	if s.isDir(n) {
		return &s.format.Dirs[n.key.level]
	}
	return &s.format.Pages[part]
}

// leaveOut notes that something of a node was left out, because of a bound.
func (s *Shadow) leaveOut(n *node) {
	s.Counts.Cut++
	n.starved = true
}

// afford pays for a page at each place of a node. It returns 0 for one that is left out.
func (s *Shadow) afford(n *node, word uint64) uint64 {
	if word == 0 || s.work.take(pageCost*uint64(len(n.places))) {
		return word
	}
	s.leaveOut(n)
	return 0
}

// set replaces an entry of a node's table, wherever the card has it.
func (s *Shadow) set(n *node, part, i int, word uint64) {
	was := n.have[part].word(i)
	if was != word {
		word = s.afford(n, word)
	}
	if was == word || !n.have[part].has(i/pageEntries) && !s.reserve(n, part, i/pageEntries) {
		return
	}
	n.have[part][i/pageEntries][i%pageEntries] = word
	l := s.tableLevel(n, part)
	for _, va := range n.places {
		s.emit(va+uint64(i)<<l.Shift, l.Shift, was, word)
	}
}

// kid returns what entry i of a directory names.
func (n *node) kid(i int) *node {
	if p := i / pageEntries; p < len(n.kids) && n.kids[p] != nil {
		return n.kids[p][i%pageEntries]
	}
	return nil
}

// eachKid calls f for the nodes that a directory names.
func (n *node) eachKid(f func(i int, kid *node)) {
	for p, page := range n.kids {
		for i, kid := range page {
			if kid != nil {
				f(p*pageEntries+i, kid)
			}
		}
	}
}

// used reports whether the card may have something of a page of a directory's entries.
func (n *node) used(page int) bool {
	return n.have[small].has(page) || n.names(page)
}

// names reports whether entries of a page may name nodes.
func (n *node) names(page int) bool { return page < len(n.kids) && n.kids[page] != nil }

var noNode node

// named returns the node of a directory entry's key, nil if it has none or there are too many.
func (s *Shadow) named(n *node, i int, key nodeKey) *node {
	if key.level == 0 {
		return nil
	}
	if to := n.kid(i); to != nil && to.key == key {
		return to
	}
	to := s.node(key)
	n.starved = n.starved || to == nil
	return to
}

// linkFirst prepares for building a node that entry i is to name, and reports whether it may be built.
// Where the card has nothing yet, the node is linked before it is built: then its parts that have no
// room are left out. Else the node is complete when it replaces another, so that no page that both have
// is unmapped.
func (s *Shadow) linkFirst(n *node, i int, to *node) bool {
	if n.kid(i) != nil || n.have[small].word(i) != 0 {
		return true
	}
	s.link(n, i, to, 0)
	return n.kid(i) == to
}

// link makes entry i of a directory name a node, or be a page, or nothing. If the places of the
// directory have no room for the node, it is left out.
func (s *Shadow) link(n *node, i int, to *node, word uint64) {
	from, was := n.kid(i), n.have[small].word(i)
	if to == from && was == word {
		return
	}
	if word != was {
		word = s.afford(n, word)
	}
	if word != 0 && !s.reserve(n, small, i/pageEntries) {
		word = 0
	}
	if to != nil && to != from && !s.fits(to, len(n.places)) {
		s.leaveOut(n)
		s.orphans = s.orphans || to.links == 0
		to = nil
	}
	l := &s.format.Dirs[n.key.level]
	for _, place := range n.places {
		va := place + uint64(i)<<l.Shift
		if was != 0 && word == 0 {
			s.emit(va, l.Shift, was, 0)
		}
		s.swap(va, int(n.key.level)+1, from, to, false)
		s.swap(va, int(n.key.level)+1, from, to, true)
		if word != 0 && word != was {
			s.emit(va, l.Shift, was, word)
		}
		if to != from {
			s.unplace(from, va)
			s.place(to, va)
		}
	}
	if was != word {
		n.have[small][i/pageEntries][i%pageEntries] = word
	}
	if to != from {
		s.relink(n, i, l, to)
	}
}

// relink sets what an entry names.
func (s *Shadow) relink(n *node, i int, l *Level, to *node) {
	if n.kids == nil {
		n.kids = make([][]*node, (l.Entries()+pageEntries-1)/pageEntries)
	}
	p := &n.kids[i/pageEntries]
	if *p == nil {
		*p = make([]*node, l.pageWords())
	}
	if from := (*p)[i%pageEntries]; from != nil {
		from.links--
		s.orphans = s.orphans || from.links == 0
	}
	if (*p)[i%pageEntries] = to; to != nil {
		to.links++
	}
}

// swap gives the card what it needs to find one node at va, where it had another; either may be nil.
// First everything that goes is unmapped, in a call of its own: pages of another size may take its place.
func (s *Shadow) swap(va uint64, level int, from, to *node, maps bool) {
	if from == to {
		return
	}
	a, b := cmp.Or(from, &noNode), cmp.Or(to, &noNode)
	if level == len(s.format.Dirs) {
		for part := range s.format.Pages {
			s.diff(va, &s.format.Pages[part], a.have[part], b.have[part], maps)
		}
		return
	}
	l := &s.format.Dirs[level]
	s.diff(va, l, a.have[small], b.have[small], maps)
	for p := range max(len(a.kids), len(b.kids)) {
		if !a.names(p) && !b.names(p) {
			continue
		}
		for k := range l.pageWords() {
			i := p*pageEntries + k
			s.swap(va+uint64(i)<<l.Shift, level+1, a.kid(i), b.kid(i), maps)
		}
	}
}

// diff emits what makes one table at va of another: what is unmapped, or what is mapped.
func (s *Shadow) diff(va uint64, l *Level, from, to table, maps bool) {
	for p := range max(len(from), len(to)) {
		if !from.has(p) && !to.has(p) {
			continue
		}
		was, now := from.page(p, l.pageWords()), to.page(p, l.pageWords())
		if sameEntries(was, now) {
			continue
		}
		at := va + uint64(p*pageEntries)<<l.Shift
		for i, q := range now {
			if was[i] != q && (q != 0) == maps {
				s.emit(at+uint64(i)<<l.Shift, l.Shift, was[i], q)
			}
		}
	}
}
