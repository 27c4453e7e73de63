package shadowpt

import "encoding/binary"

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
	// Translate returns the card's address of n bytes at a guest address. It returns
	// false unless all of them belong to the guest, are contiguous on the card, and
	// may be written if write is set.
	Translate(t Target, addr uint64, n uint64, write bool) (card uint64, ok bool)
}

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

	buf        []byte
	small, big sheet
}

// NewWork returns a Work that allows left bytes.
func NewWork(left uint64) *Work {
	return &Work{
		Left: left, buf: make([]byte, SmallTableSize),
		small: sheet{entries: make([]uint64, SmallEntries)}, big: sheet{entries: make([]uint64, BigEntries)},
	}
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

// Sizes of tables in bytes.
const (
	SmallTableSize = SmallEntries * 8
	BigTableSize   = BigEntries * 8
)

// Shadow is the card's version of one guest address space: every entry is not present or
// names memory of the guest. It belongs to one goroutine at a time.
//
// The tables of one directory entry form a node. Directory entries that name the same two
// tables share it.
type Shadow struct {
	Counts *Counts // of its Work

	guest Guest
	card  Card
	space Space     // the guest's
	dir   cardTable // on the card
	nodes map[nodeKey]*node

	// retired are tables that the card may still be walking.
	retired []cardTable

	work *Work

	// A Tracker's state of the directory while it follows the shadow.
	tracker *Tracker
	pages   []held
	at      [DirEntries / pageEntries][]*node // the node of each entry; nil: no entry of the page has one
	changed entrySet
}

// cardTable is a table of the card's.
type cardTable struct {
	addr, size uint64 // addr 0: no table
	// used are its pages that may be nonzero.
	used pageMask
}

type nodeKey struct {
	big, small Table
	size       uint8 // the tables' length is shifted right by size
}

// node is the shadow of a directory entry's tables.
type node struct {
	big, small cardTable
	seen       bool // in the build under way

	// over are the big pages that replace the guest's small pages: they were split, or
	// there was no room for a big table.
	over    [BigEntries / 64]uint64
	starved bool // a table was left out for lack of room

	tracked
}

func (n *node) isOver(big uint64) bool { return n.over[big/64]>>(big%64)&1 != 0 }

func (n *node) setOver(big uint64, on bool) {
	n.over[big/64] &^= 1 << (big % 64)
	if on {
		n.over[big/64] |= 1 << (big % 64)
	}
}

// NewShadow returns an empty shadow of s that builds within w. It fails if there is no room
// for a directory.
func NewShadow(g Guest, c Card, w *Work, s Space) (*Shadow, bool) {
	dir, ok := c.AllocTable(DirSize)
	if !ok {
		return nil, false
	}
	return &Shadow{
		Counts: &w.Counts, guest: g, card: c, space: s, dir: cardTable{addr: dir, size: DirSize}, work: w,
		nodes: make(map[nodeKey]*node),
	}, true
}

// Dir returns the address of the shadow directory on the card.
func (s *Shadow) Dir() uint64 { return s.dir.addr }

// Space returns the address space as the guest describes it.
func (s *Shadow) Space() Space { return s.space }

// Release frees the retired tables. The card must have finished an invalidate since they
// were retired: before that a walk may still be inside them.
func (s *Shadow) Release() {
	for i := range s.retired {
		s.free(&s.retired[i])
	}
	s.retired = s.retired[:0]
}

// free clears a table and frees it.
func (s *Shadow) free(t *cardTable) {
	t.used.each(func(page int) { s.card.WriteTable(t.addr+uint64(page)*SmallPage, zeroPage[:]) })
	s.card.FreeTable(t.addr, t.size)
}

// Free frees all tables. The card must have finished an invalidate since the last channel
// left the directory.
func (s *Shadow) Free() {
	if s.tracker != nil {
		s.tracker.Unfollow(s)
	}
	for k, n := range s.nodes {
		s.drop(k, n)
	}
	s.Release()
	s.free(&s.dir)
}

// Rebuild reads all of the guest's tables and writes all of the card's. It is the simple
// way, and the oracle that tests compare a Tracker with. Each table is copied once and only
// the copy is examined. The shadow must not be followed by a Tracker.
func (s *Shadow) Rebuild() {
	for _, n := range s.nodes {
		n.seen = false
	}
	dir := make([]byte, DirSize)
	switch {
	case !s.work.take(DirSize):
		s.Counts.Cut++
	case !s.guest.ReadTable(s.space.Target, s.space.Dir, dir):
		s.Counts.Unread++
		clear(dir)
	}
	s.Counts.Examined += DirEntries
	for i := 0; i < DirSize; i += 8 {
		if q := binary.LittleEndian.Uint64(dir[i:]); q != 0 {
			binary.LittleEndian.PutUint64(dir[i:], s.shadowPDE(q))
		}
	}
	s.card.WriteTable(s.dir.addr, dir)
	s.dir.used = allPages(DirSize)
	s.Counts.Rewritten += DirEntries
	for k, n := range s.nodes {
		if !n.seen {
			s.drop(k, n)
		}
	}
}

func (s *Shadow) drop(k nodeKey, n *node) {
	for _, t := range [...]cardTable{n.big, n.small} {
		if t.addr != 0 {
			s.retired = append(s.retired, t)
		}
	}
	delete(s.nodes, k)
}

// shadowPDE returns the card's entry for a guest's directory entry.
func (s *Shadow) shadowPDE(q uint64) uint64 {
	key, ok := keyOf(q)
	if !ok {
		return 0
	}
	n := s.node(key)
	if !n.seen {
		n.seen = true
		s.fill(n, key)
	}
	return n.pde(key)
}

// keyOf returns the tables of a guest's directory entry; false if it has none.
func keyOf(q uint64) (nodeKey, bool) {
	g := DecodePDE(q)
	return nodeKey{g.Big, g.Small, g.Size}, g.Big.Present || g.Small.Present
}

func (s *Shadow) node(key nodeKey) *node {
	n := s.nodes[key]
	if n == nil {
		n = &node{big: cardTable{size: BigTableSize}, small: cardTable{size: SmallTableSize}}
		s.nodes[key] = n
	}
	return n
}

// pde returns the card's directory entry for the node.
func (n *node) pde(key nodeKey) uint64 {
	out := PDE{Size: key.size}
	if n.big.addr != 0 {
		out.Big = Table{Present: true, Target: VRAM, Addr: n.big.addr}
	}
	if n.small.addr != 0 {
		out.Small = Table{Present: true, Target: VRAM, Addr: n.small.addr}
	}
	return out.Encode()
}

// fill builds the tables of a node from the guest's.
func (s *Shadow) fill(n *node, key nodeKey) {
	small, big := &s.work.small, &s.work.big
	small.clear()
	big.clear()
	s.read(key.small, small, SmallEntries>>key.size)
	s.read(key.big, big, BigEntries>>key.size)
	s.compose(n)
}

// read decodes n entries of a guest table. They stay zero if it is absent.
func (s *Shadow) read(t Table, into *sheet, n int) {
	if !t.Present {
		return
	}
	b := s.work.buf[:n*8]
	if !s.work.take(uint64(len(b))) {
		s.Counts.Cut++
		return
	}
	if !s.guest.ReadTable(t.Target, t.Addr, b) {
		s.Counts.Unread++
		return
	}
	s.Counts.Examined += uint64(n)
	for i := 0; i < n; i += pageEntries {
		into.take(i/pageEntries, b[i*8:min((i+pageEntries)*8, len(b))])
	}
}

// entry returns the card's entry for a guest's page entry; 0 is not present. It uses masks because tables have many entries; tests compare it
// with a version that translates field by field. Kinds are copied: they describe the order
// of bytes inside a page. Compression tags are dropped: they name a resource of the card
// that guests have no share of.
func (s *Shadow) entry(q, page uint64) uint64 {
	if q&valid == 0 {
		return 0
	}
	card, ok := s.guest.Translate(Target(pteTarget.get(q)), addressOf(q), page, q&readOnly == 0)
	if !ok {
		if page == SmallPage {
			s.Counts.Foreign++
		}
		return 0
	}
	return q&copied | addressed(card)
}
