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

// Card holds the shadow tables.
type Card interface {
	// AllocTable returns n zeroed bytes of card memory, aligned to 4 KiB, that the
	// guest cannot reach; false when its share is used up.
	AllocTable(n uint64) (addr uint64, ok bool)
	// FreeTable frees them. The caller has zeroed them.
	FreeTable(addr, n uint64)
	// WriteTable stores entries. The card may be walking them, so each aligned 8 bytes must
	// change atomically: a torn entry names an unchecked page.
	WriteTable(addr uint64, p []byte)
}

// Work counts and bounds the cost of building the shadows of one guest, and provides their scratch
// memory. Shadows that share a Work belong to the same goroutine.
type Work struct {
	Counts Counts
	// Left is how many bytes of the guest's tables may still be read. A table that does
	// not fit counts as absent. The owner sets Left before a build.
	Left uint64

	format *Format
	nodes  int // and how often directories name them
	buf    []byte
	dirs   [MaxLevels][]byte
	sheets [2]sheet
	bursts [2]burst // of entries of big and of other tables
}

// maxNodes bounds the nodes of a guest's shadows, and so their memory. One covers 2 MiB at
// least. An entry that would need one more counts as absent.
const maxNodes = 1 << 17

// NewWork returns a Work for tables of a format that allows left bytes.
func NewWork(f *Format, left uint64) *Work {
	w := &Work{Left: left, format: f, buf: make([]byte, f.Pages[small].Size())}
	for i := range f.Dirs {
		w.dirs[i] = make([]byte, f.Dirs[i].Size())
	}
	for i := range w.sheets {
		w.sheets[i].entries = make([]uint64, max(f.Pages[i].Entries(), pageEntries))
		w.bursts[i].buf = make([]byte, 0, SmallPage)
	}
	return w
}

// take reports whether n bytes may be read, and counts them.
func (w *Work) take(n uint64) bool {
	if n > w.Left {
		w.Left = 0
		return false
	}
	w.Left -= n
	return true
}

// Counts are the costs and refusals of building shadows.
type Counts struct {
	Compared  uint64 // bytes of tables compared with what they were
	Examined  uint64 // entries looked at
	Changed   uint64 // of these, entries that were not what they had been
	Rewritten uint64 // entries written to the card
	Foreign   uint64 // valid entries that name nothing of the guest's
	Unread    uint64 // tables outside the guest's memory
	NoRoom    uint64 // tables that the guest's share had no room for
	Cut       uint64 // tables that the bound on work left out
}

// Shadow is the card's version of one guest address space: every entry is not present or
// names memory of the guest. It belongs to one goroutine at a time.
//
// It is made of nodes: a directory, or the tables of one entry of the last directories.
// Entries that name the same tables share a node.
type Shadow struct {
	Counts *Counts // of its Work

	format *Format
	guest  Guest
	space  Space // the guest's
	root   *node
	nodes  map[nodeKey]*node // without the root
	out    sink
	work   *Work

	tracker *Tracker           // that follows the shadow
	dirty   [MaxLevels][]*node // directories with changed entries
	orphans bool               // there may be nodes that no entry names
}

// nodeKey is what a node is the shadow of.
type nodeKey struct {
	level      uint8 // of directories, or their number: tables of pages
	size       uint8 // the tables' length is shifted right by size
	big, small Table
	page       uint64 // entry of a larger page, in place of tables: it is split
}

// node is the shadow of a directory, or of the tables of one entry.
type node struct {
	key    nodeKey
	tables [2]cardTable // the sink's; a directory has the second
	seen   bool         // in the build under way

	// over are the big pages that replace the guest's small pages: they were split, or
	// there was no room for a big table.
	over    bitset
	starved bool // something was left out for lack of room

	tracked
}

// link is what a directory entry becomes: the tables of a node, a page or nothing.
type link struct {
	to     *node
	page   uint64
	sparse bool
}

// NewShadow returns an empty shadow of s that builds within w. It fails if there is no room
// for a directory.
func NewShadow(g Guest, c Card, w *Work, s Space) (*Shadow, bool) {
	sh := &Shadow{
		Counts: &w.Counts, format: w.format, guest: g, space: s, work: w, nodes: make(map[nodeKey]*node),
		root: &node{key: nodeKey{small: Table{Present: true, Target: s.Target, Addr: s.Dir}}},
	}
	e := &encoder{card: c, s: sh}
	if sh.out = e; !e.alloc(sh.root, small) {
		return nil, false
	}
	return sh, true
}

// Dir returns the address of the shadow directory on the card.
func (s *Shadow) Dir() uint64 { return s.root.tables[small].addr }

// Space returns the address space as the guest describes it.
func (s *Shadow) Space() Space { return s.space }

// Release frees the retired tables. The card must have finished an invalidate since they
// were retired: before that a walk may still be inside them.
func (s *Shadow) Release() { s.out.release() }

// Free frees all tables. The card must have finished an invalidate since the last channel
// left the directory.
func (s *Shadow) Free() {
	if s.tracker != nil {
		s.tracker.Unfollow(s)
	}
	for _, n := range s.nodes {
		s.drop(n)
	}
	s.out.drop(s.root)
	s.out.release()
}

// Rebuild reads all of the guest's tables and writes all of the card's. It is the simple
// way, and the oracle that tests compare a Tracker with. Each table is copied once and only
// the copy is examined. The shadow must not be followed by a Tracker.
func (s *Shadow) Rebuild() {
	for _, n := range s.nodes {
		n.seen = false
	}
	s.fill(s.root)
	s.out.flush()
	for _, n := range s.nodes {
		if !n.seen {
			s.drop(n)
		}
	}
}

func (s *Shadow) drop(n *node) {
	s.out.drop(n)
	s.work.nodes--
	delete(s.nodes, n.key)
}

// resolve returns what a guest's directory entry becomes. If it names tables, key is that of
// their node, and its level is not 0.
func (s *Shadow) resolve(n *node, w Words) (key nodeKey, l link) {
	level := &s.format.Dirs[n.key.level]
	switch pde := level.Decode(w); {
	case pde.Sparse:
		l.sparse = true
	case pde.Page != 0:
		if l.page = s.entry(pde.Page, level.Span()); l.page == 0 {
			key = nodeKey{level: n.key.level + 1, page: pde.Page}
		}
	case pde.Big.Present || pde.Small.Present:
		key = nodeKey{level: n.key.level + 1, big: pde.Big, small: pde.Small, size: pde.Size}
	}
	return key, l
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

// fill builds the tables of a node from the guest's.
func (s *Shadow) fill(n *node) {
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
	used := n.tables[small].used
	for at := 0; at < len(dir); at += SmallPage {
		page := dir[at:min(at+SmallPage, len(dir))]
		if used>>(at/SmallPage)&1 == 0 && bytes.Equal(page, zeroPage[:len(page)]) {
			continue
		}
		for i := 0; i < len(page); i += step {
			s.out.link(n, (at+i)/step, s.fillEntry(n, wordsOf(page[i:i+step])))
		}
	}
}

func wordsOf(b []byte) (w Words) {
	for i := 0; i < len(b); i += 8 {
		w[i/8] = binary.LittleEndian.Uint64(b[i:])
	}
	return w
}

func (s *Shadow) fillEntry(n *node, w Words) link {
	key, l := s.resolve(n, w)
	if key.level == 0 {
		return l
	}
	if l.to = s.node(key); l.to != nil && !l.to.seen {
		l.to.seen = true
		s.fill(l.to)
	}
	return l
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

// entry returns the card's entry for a guest's page entry; 0 is not present. It uses masks because tables have many
// entries; tests compare it with a version that translates field by field. Kinds are copied: they describe the order
// of bytes inside a page. Compression tags are dropped: they name a resource of the card
// that guests have no share of.
func (s *Shadow) entry(q, page uint64) uint64 {
	f := s.format
	if q&f.valid == 0 {
		return f.unmapped(q)
	}
	card, ok := s.guest.Translate(Target(f.pte.target.get(q)), f.addressOf(q), page, q&f.readOnly == 0)
	if !ok {
		if page == SmallPage {
			s.Counts.Foreign++
		}
		return 0
	}
	return q&f.copied | f.addressed(card)
}
