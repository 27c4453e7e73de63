package shadowpt

import (
	"bytes"
	"encoding/binary"
)

// Tables reads a guest's memory as its page tables name it.
type Tables interface {
	// ReadTable copies len(p) bytes of the guest's memory. It returns false if
	// not all of them belong to the guest; p is then undefined.
	ReadTable(t Target, addr uint64, p []byte) bool
	// SameTable reports whether the guest's memory holds p, without a copy.
	SameTable(t Target, addr uint64, p []byte) bool
}

// Guest gives access to the guest whose tables are shadowed.
type Guest interface {
	Tables
	// SameTables is SameTable for at most MaxParts parts of tables.
	SameTables(parts []Part)
	// Translate returns the card's address of n bytes at a guest address. It returns
	// false unless all of them belong to the guest, are contiguous on the card, and
	// may be written if write is set.
	Translate(t Target, addr uint64, n uint64, write bool) (card uint64, ok bool)
}

// Part is a part of a table that a Guest compares with its memory.
type Part struct {
	Target Target
	Addr   uint64
	Bytes  []byte // a page at most
	Same   bool   // the answer

	leaf *leaf
}

// MaxParts bounds the parts that are compared in one call, and so what waits for its end.
const MaxParts = 64

// Shadow is the card's version of one guest address space: every entry is not present or
// names memory of the guest. It belongs to one goroutine at a time.
//
// It is made of nodes: a directory, or the tables of one entry of the last directories.
// Entries that name the same tables share a node. The card gets changes of pages: no two that it
// has overlap, since a large page hides the small ones in its range, or the reverse.
type Shadow struct {
	Counts *Counts // of its Work

	format  *Format
	guest   Guest
	card    Card
	space   Space // the guest's
	root    *node
	nodes   map[nodeKey]*node // without the root
	work    *Work
	refused map[refusedAt]*refusedSet
	// lacking are the spans for whose tables the card had no memory, by the size of pages, until a
	// Release. The card is not asked about them again.
	lacking map[span]struct{}
	orphans bool // there may be nodes that no entry names

	tracker *Tracker           // that follows the shadow
	dirty   [MaxLevels][]*node // directories with changed entries
}

// NewShadow returns an empty shadow of s that builds within w. c is the card's space, which is empty.
func NewShadow(g Guest, c Card, w *Work, s Space) *Shadow {
	sh := &Shadow{
		Counts: &w.Counts, format: w.format, guest: g, card: c, space: s, work: w, nodes: make(map[nodeKey]*node),
		root: &node{key: nodeKey{small: Table{Present: true, Target: s.Target, Addr: s.Dir}}, places: []uint64{0}},
	}
	w.placed += sh.weight(sh.root)
	return sh
}

// Space returns the address space as the guest describes it.
func (s *Shadow) Space() Space { return s.space }

// Free gives back what the shadow takes of its Work. The caller frees the card's space.
func (s *Shadow) Free() {
	s.work.out.forget(s)
	if s.tracker != nil {
		s.tracker.Unfollow(s)
	}
	for _, n := range s.nodes {
		s.work.placed -= uint64(len(n.places)) * s.weight(n)
	}
	s.work.placed -= s.weight(s.root)
	s.work.nodes -= len(s.nodes)
	clear(s.nodes)
}

// Rebuild reads all of the guest's tables. It is the simple way, and the oracle that tests compare a
// Tracker with. Each table is copied once and only the copy is examined. The shadow must not be
// followed by a Tracker.
func (s *Shadow) Rebuild() {
	for _, n := range s.nodes {
		n.seen = false
	}
	s.work.full, s.work.cut = false, false
	s.lacking = nil
	s.retry()
	s.fill(s.root)
	s.dropOrphans()
	s.work.out.flush()
}

// resolve returns what a guest's directory entry becomes. If it names tables, key is that of
// their node, and its level is not 0; else word is the card's page, or 0.
func (s *Shadow) resolve(n *node, w Words) (key nodeKey, word uint64) {
	level := &s.format.Dirs[n.key.level]
	switch pde := level.Decode(w); {
	case pde.Sparse:
		word = sparseWord
	case pde.Page != 0:
		if word = s.entry(pde.Page, level.Span()); word == 0 {
			key = nodeKey{level: n.key.level + 1, page: pde.Page}
		}
	case pde.Big.Present || pde.Small.Present:
		key = nodeKey{level: n.key.level + 1, big: pde.Big, small: pde.Small, size: pde.Size}
	}
	return key, word
}

// node returns the node of a key, nil if the guest has too many.
func (s *Shadow) node(key nodeKey) *node {
	n := s.nodes[key]
	if n != nil {
		return n
	}
	if s.work.nodes >= maxNodes {
		s.Counts.Cut++
		return nil
	}
	s.work.nodes++
	n = &node{key: key}
	s.nodes[key] = n
	return n
}

// isDir reports whether the node is a directory.
func (s *Shadow) isDir(n *node) bool { return int(n.key.level) < len(s.format.Dirs) }

// words returns the length of a node's table in words.
func (s *Shadow) words(n *node, part int) int {
	if s.isDir(n) {
		return int(s.format.Dirs[n.key.level].Size() / 8)
	}
	return s.format.Pages[part].Entries() >> n.key.size
}

// table returns where the guest has a table of the node.
func (n *node) table(part int) Table {
	if part == big {
		return n.key.big
	}
	return n.key.small
}

// fill builds a node from the guest's tables.
func (s *Shadow) fill(n *node) {
	n.seen = true
	if s.isDir(n) {
		s.fillDir(n)
		return
	}
	for part := range s.work.sheets {
		into := &s.work.sheets[part]
		into.clear()
		b := s.work.buf[:s.words(n, part)*8]
		if s.read(n.table(part), b) {
			for i := 0; i < len(b); i += SmallPage {
				into.take(i/SmallPage, b[i:min(i+SmallPage, len(b))])
			}
		}
	}
	s.splitLarge(n)
	s.compose(n)
}

// fillDir builds a directory, and what its entries name.
func (s *Shadow) fillDir(n *node) {
	dir := s.work.dirs[n.key.level]
	if !s.read(n.key.small, dir) {
		clear(dir)
	}
	step := int(s.format.Dirs[n.key.level].Words) * 8
	for at := 0; at < len(dir); at += SmallPage {
		page := dir[at:min(at+SmallPage, len(dir))]
		if !n.used(at/step/pageEntries) && bytes.Equal(page, zeroPage[:len(page)]) {
			continue
		}
		for i := 0; i < len(page); i += step {
			s.fillEntry(n, (at+i)/step, wordsOf(page[i:i+step]))
		}
	}
}

func wordsOf(b []byte) (w Words) {
	for i := 0; i < len(b); i += 8 {
		w[i/8] = binary.LittleEndian.Uint64(b[i:])
	}
	return w
}

func (s *Shadow) fillEntry(n *node, i int, w Words) {
	key, word := s.resolve(n, w)
	to := s.named(n, i, key)
	if to != nil && !to.seen {
		if !s.linkFirst(n, i, to) {
			return
		}
		s.fill(to)
	}
	s.link(n, i, to, word)
}

// read reads a guest's table. It returns false if there is none.
func (s *Shadow) read(t Table, b []byte) bool {
	if !t.Present {
		return false
	}
	if !s.work.take(uint64(len(b))) {
		s.Counts.Cut++
		return false
	}
	if !s.guest.ReadTable(t.Target, t.Addr, b) {
		s.Counts.Unread++
		return false
	}
	s.Counts.Examined += uint64(len(b) / 8)
	return true
}

// entry returns the card's word for a guest's page entry; 0 is not present. It uses masks because tables have many
// entries; tests compare it with a version that translates field by field. Kinds are copied: they describe the order
// of bytes inside a page. Compression tags are dropped: they name a resource of the card
// that guests have no share of.
func (s *Shadow) entry(q, page uint64) uint64 {
	f := s.format
	if q&f.valid == 0 {
		if f.sparse(q) {
			return sparseWord
		}
		return 0
	}
	card, ok := s.guest.Translate(Target(f.pte.target.get(q)), f.addressOf(q), page, q&f.readOnly == 0)
	if !ok || card>>(64-addrShift+pageShift) != 0 {
		if page == SmallPage {
			s.Counts.Foreign++
		}
		return 0
	}
	w := s.work
	if bits := q & f.copied; bits != w.bits { // neighbours mostly differ in their addresses only
		w.bits, w.attributes = bits, f.attributes(bits)
	}
	return w.attributes | card>>pageShift<<addrShift
}
