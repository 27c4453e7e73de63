package shadowpt

import "encoding/binary"

// Guest is whose tables are shadowed.
type Guest interface {
	// ReadTable copies len(p) bytes of the guest's memory. It returns false if
	// not all of them belong to the guest; p is then undefined.
	ReadTable(t Target, addr uint64, p []byte) bool
	// SameTable reports whether the guest's memory holds p. It copies nothing, so who
	// wants to know what is there otherwise has to read it.
	SameTable(t Target, addr uint64, p []byte) bool
	// Translate turns n bytes at an address as the guest knows it into the
	// card's. It returns false unless all of them are the guest's, lie together
	// on the card, and may be written if write is set.
	Translate(t Target, addr uint64, n uint64, write bool) (card uint64, ok bool)
}

// Card is where shadow tables lie.
type Card interface {
	// AllocTable returns n bytes of card memory, all zero, aligned to 4 KiB, that
	// the guest cannot reach; false when its share is used up.
	AllocTable(n uint64) (addr uint64, ok bool)
	// FreeTable takes them back. They are zero again.
	FreeTable(addr, n uint64)
	// WriteTable stores entries. The card may be walking them: each aligned
	// 8 bytes must change at once, for half of one entry and half of another
	// name a page that nobody checked.
	WriteTable(addr uint64, p []byte)
}

// Work bounds what building the shadows of one guest takes, and lends them
// memory to build in. Shadows that share a Work belong to the same goroutine.
type Work struct {
	// Left is how many bytes of the guest's tables may still be read. A table
	// that does not fit counts as not there; the owner sets Left before a build.
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

// Counts says what building shadows took and what it refused.
type Counts struct {
	Builds    uint64 `json:"builds"`    // full rebuilds of one space
	Scans     uint64 `json:"scans"`     // updates of what had changed in any
	Tables    uint64 `json:"tables"`    // tables read whole
	Compared  uint64 `json:"compared"`  // bytes of tables compared with what they were
	Examined  uint64 `json:"examined"`  // entries looked at
	Changed   uint64 `json:"changed"`   // of these, entries that were not what they had been
	Rewritten uint64 `json:"rewritten"` // entries written to the card
	Split     uint64 `json:"split"`     // big pages entered as small ones
	Foreign   uint64 `json:"foreign"`   // valid entries that name nothing of the guest's
	Unread    uint64 `json:"unread"`    // tables outside the guest's memory
	NoRoom    uint64 `json:"no_room"`   // tables that the guest's share had no room for
	Cut       uint64 `json:"cut"`       // tables that the bound on work left out
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.Builds += o.Builds
	c.Scans += o.Scans
	c.Compared += o.Compared
	c.Changed += o.Changed
	c.Tables += o.Tables
	c.Examined += o.Examined
	c.Rewritten += o.Rewritten
	c.Split += o.Split
	c.Foreign += o.Foreign
	c.Unread += o.Unread
	c.NoRoom += o.NoRoom
	c.Cut += o.Cut
}

// Sizes of tables in bytes.
const (
	SmallTableSize = SmallEntries * 8
	BigTableSize   = BigEntries * 8
)

// Shadow is the card's version of one guest address space: every entry is
// either not present or names memory of the guest's. It is built by Rebuild and
// belongs to one goroutine at a time.
//
// The tables of one directory entry make a node. Directory entries that name
// the same two tables share a node.
type Shadow struct {
	Counts Counts

	guest Guest
	card  Card
	space Space     // the guest's
	dir   cardTable // on the card
	nodes map[nodeKey]*node

	// retired are tables that the card may still be walking.
	retired []cardTable

	work *Work

	// What a Tracker keeps of the directory while it follows the shadow.
	tracker *Tracker
	pages   []held
	at      [DirEntries / pageEntries][]*node // the node behind each entry; nil: none behind all of them
	changed entrySet
}

// cardTable is a table of the card's.
type cardTable struct {
	addr, size uint64 // addr 0: there is none
	// used are the pages of it that may hold something: the others are zero.
	used pageMask
}

type nodeKey struct {
	big, small Table
	size       uint8 // how much of the tables counts: all >> size
}

// node is the shadow of the tables behind a directory entry.
type node struct {
	big, small cardTable
	seen       bool // in the build under way

	// over are the big pages whose range of the small table is not what the guest
	// has there: they are entered as small pages, or there was no room for them.
	over    [BigEntries / 64]uint64
	starved bool // something was left out for want of room

	tracked // what a Tracker keeps of it
}

func (n *node) isOver(big uint64) bool { return n.over[big/64]>>(big%64)&1 != 0 }

func (n *node) setOver(big uint64, on bool) {
	n.over[big/64] &^= 1 << (big % 64)
	if on {
		n.over[big/64] |= 1 << (big % 64)
	}
}

// NewShadow makes an empty shadow of s, to be built within w. It fails if there
// is no room for a directory.
func NewShadow(g Guest, c Card, w *Work, s Space) (*Shadow, bool) {
	dir, ok := c.AllocTable(DirSize)
	if !ok {
		return nil, false
	}
	return &Shadow{
		guest: g, card: c, space: s, dir: cardTable{addr: dir, size: DirSize}, work: w,
		nodes: make(map[nodeKey]*node),
	}, true
}

// Dir returns the address of the shadow directory on the card.
func (s *Shadow) Dir() uint64 { return s.dir.addr }

// Space returns the address space as the guest describes it.
func (s *Shadow) Space() Space { return s.space }

// Release gives back the tables that Rebuild took out of use. The card must have
// finished an invalidate since: before it, a walk may still be inside them.
func (s *Shadow) Release() {
	for i := range s.retired {
		s.free(&s.retired[i])
	}
	s.retired = s.retired[:0]
}

// free gives a table back, empty.
func (s *Shadow) free(t *cardTable) {
	t.used.each(func(page int) { s.card.WriteTable(t.addr+uint64(page)*SmallPage, zeroPage[:]) })
	s.card.FreeTable(t.addr, t.size)
}

// Free gives all tables back. The card must not use them any more: it has
// finished an invalidate since the last channel left the directory.
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

// Rebuild reads all of the guest's tables and writes the card's anew: straight, and
// as long as the tables are large. Each table is copied once, and only the copy is
// looked at. It is not for a shadow that a Tracker follows.
func (s *Shadow) Rebuild() { s.rebuild(s.entry) }

// translator turns a guest's page entry into the card's; 0 is not present.
type translator func(q, page uint64) uint64

func (s *Shadow) rebuild(translate translator) {
	s.Counts.Builds++
	for _, n := range s.nodes {
		n.seen = false
	}
	dir := make([]byte, DirSize)
	s.Counts.Tables++
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
			binary.LittleEndian.PutUint64(dir[i:], s.shadowPDE(q, translate))
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
func (s *Shadow) shadowPDE(q uint64, translate translator) uint64 {
	key, ok := keyOf(q)
	if !ok {
		return 0
	}
	n := s.node(key)
	if !n.seen {
		n.seen = true
		s.fill(n, key, translate)
	}
	return n.pde(key)
}

// keyOf returns what a guest's directory entry names; false if it names nothing.
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
func (s *Shadow) fill(n *node, key nodeKey, translate translator) {
	small, big := &s.work.small, &s.work.big
	small.clear()
	big.clear()
	s.read(key.small, small, SmallEntries>>key.size)
	s.read(key.big, big, BigEntries>>key.size)
	s.compose(n, translate)
}

// read decodes n entries of a guest table, which stay zero if there is none.
func (s *Shadow) read(t Table, into *sheet, n int) {
	if !t.Present {
		return
	}
	s.Counts.Tables++
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

// entry is the translator. Tables have many entries, so none is taken apart; its slow
// twin, which tests hold it against, does it field by field. Kinds are copied: they say
// how bytes are ordered inside a page, not which page. Compression tags name a resource
// that no guest has a share of, and are left out.
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
	return q&kept | addressed(card)
}
