package driver

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// space is an address space: tables in the card's memory. It belongs to the goroutine of its Share.
type space struct {
	memory tableMemory
	format *shadowpt.Format
	root   *table
	// fresh are tables of the change under way, which no entry on the card names yet. emptied are tables
	// that may have no entries left, which leave their directory at the end of an Apply. retired are
	// those that left: a walk may be inside until an invalidate.
	fresh, emptied, retired []*table
	burst                   burst
}

// burst collects adjacent entries of one page of a table for one write.
type burst struct {
	t     *table
	first int // entry
	n     int
	words [vram.PageSize]byte
}

// tableMemory is where tables lie.
type tableMemory interface {
	take(n uint64) (addr uint64, ok bool)
	giveBack(addr, n uint64)
	write(addr uint64, p []byte)
}

// table is one of the card's: a directory or a table of pages.
type table struct {
	addr    uint64
	level   *shadowpt.Level
	set     int    // entries
	written uint64 // pages of the table, 64 at most, that may be nonzero

	// Where it hangs: in entry at of a directory, as the table of part. up is nil of the root, and
	// of a table that was retired.
	up       *table
	at, part int

	kids [2][]*table // of a directory, by part
}

// Parts of an entry of the last directory. A directory's table of the next level is in the second.
const (
	bigPages   = 0
	smallPages = 1
)

const pageWords = vram.PageSize / 8

// NewSpace implements card.Share.
func (s *share) NewSpace() (card.Space, error) {
	if sp := newSpace(s, s.format); sp != nil {
		return sp, nil
	}
	return nil, card.ErrTables
}

// newSpace returns an empty space, nil if there is no memory for it.
func newSpace(m tableMemory, f *shadowpt.Format) *space {
	s := &space{memory: m, format: f}
	s.root = s.newTable(&f.Dirs[0])
	if s.root == nil {
		return nil
	}
	return s
}

func (s *space) newTable(l *shadowpt.Level) *table {
	addr, ok := s.memory.take(l.Size())
	if !ok {
		return nil
	}
	return &table{addr: addr, level: l}
}

// Apply implements card.Space.
func (s *space) Apply(list []card.Change) (done int, err error) {
	defer s.retireEmpty()
	defer s.flush()
	for i := range list {
		c := &list[i]
		if err := s.apply(c); err != nil {
			if c.Flags&shadowpt.Over != 0 {
				err = errors.Join(err, s.apply(&card.Change{VA: c.VA, Size: c.Size, Page: c.Page}))
			}
			return i, err
		}
	}
	return len(list), nil
}

func (s *space) apply(c *card.Change) error {
	depth, part, err := s.entries(c)
	if err != nil {
		return err
	}
	if !c.Unmaps() && c.Flags&shadowpt.Over == 0 && !s.reachAll(c, depth, part) {
		return card.ErrTables
	}
	pte := c.PTE(0)
	pte.Addr = 0
	word := s.format.EncodePTE(pte)
	for va := c.VA; va < c.VA+c.Size; {
		t := s.find(va, depth, part)
		if t == nil {
			return errors.New("nothing is mapped there")
		}
		end := min(t.end(va), c.VA+c.Size)
		s.count(t, int((end-va)>>t.level.Shift), c)
		if depth < len(s.format.Dirs) {
			s.writeDir(t, va, end, word, c)
		} else {
			s.writePages(t, va, end, word, c)
		}
		va = end
	}
	return nil
}

// end is the first address after what the table covers around va.
func (t *table) end(va uint64) uint64 {
	span := t.level.Span() << t.level.Bits
	return va&^(span-1) + span
}

// entries returns which tables have entries for pages of a change's size: directories of a level, or
// tables of pages below the last one.
func (s *space) entries(c *card.Change) (depth, part int, err error) {
	f := s.format
	sparse := c.Flags&shadowpt.Sparse != 0
	switch {
	case c.VA+c.Size > f.VASize():
		return 0, 0, fmt.Errorf("the card's spaces end before %#x+%#x", c.VA, c.Size)
	case c.Flags&shadowpt.Mapped != 0 && !f.Reaches(c.End()):
		return 0, 0, fmt.Errorf("the card's tables name no memory up to %#x", c.End())
	}
	for part := range f.Pages {
		if f.Pages[part].Span() == c.Page && !(sparse && !f.HasSparse()) {
			return len(f.Dirs), part, nil
		}
	}
	for depth := range f.Dirs {
		if l := &f.Dirs[depth]; l.Span() == c.Page && (l.HasSparse() || !sparse) && (l.HasPages() || sparse || c.Unmaps()) {
			return depth, smallPages, nil
		}
	}
	return 0, 0, fmt.Errorf("%w of %d KiB, sparse %t", errPage, c.Page>>10, sparse)
}

var errPage = errors.New("the card has no pages")

// find returns the table with the entry for va, nil if there is none.
func (s *space) find(va uint64, depth, part int) *table {
	t := s.root
	for level := 1; level <= depth && t != nil; level++ {
		t = t.kid(int(t.level.Index(va)), s.partOf(level, part))
	}
	return t
}

// partOf is the part of an entry that names a table at a depth.
func (s *space) partOf(depth, part int) int {
	if depth < len(s.format.Dirs) {
		return smallPages
	}
	return part
}

func (t *table) kid(i, part int) *table {
	if t.kids[part] == nil {
		return nil
	}
	return t.kids[part][i]
}

// reachAll allocates the tables that a change needs. If there is no memory for all of them, it takes none.
func (s *space) reachAll(c *card.Change, depth, part int) bool {
	for va := c.VA; va < c.VA+c.Size; {
		t := s.reach(va, depth, part)
		if t == nil {
			s.giveBackFresh()
			return false
		}
		va = t.end(va)
	}
	for _, t := range s.fresh {
		s.link(t.up, t.at)
	}
	s.forgetFresh()
	return true
}

// reach is find, and allocates the tables that are missing, without entries on the card that name
// them. It returns nil if there is no memory.
func (s *space) reach(va uint64, depth, part int) *table {
	t := s.root
	for level := 1; level <= depth; level++ {
		i, part := int(t.level.Index(va)), s.partOf(level, part)
		next := t.kid(i, part)
		if next == nil {
			l := &s.format.Pages[part]
			if level < len(s.format.Dirs) {
				l = &s.format.Dirs[level]
			}
			if next = s.newTable(l); next == nil {
				return nil
			}
			next.up, next.at, next.part = t, i, part
			if t.kids[part] == nil {
				t.kids[part] = make([]*table, t.level.Entries())
			}
			if t.kids[part][i] = next; t.kid(i, 1-part) == nil {
				t.set++
			}
			s.fresh = append(s.fresh, next)
		}
		t = next
	}
	return t
}

// link writes an entry of a directory that names tables.
func (s *space) link(t *table, i int) {
	place := func(k *table) shadowpt.Table {
		if k == nil {
			return shadowpt.Table{}
		}
		return shadowpt.Table{Present: true, Target: shadowpt.VRAM, Addr: k.addr}
	}
	s.writeEntry(t, i, t.level.Encode(shadowpt.PDE{Big: place(t.kid(i, bigPages)), Small: place(t.kid(i, smallPages))}))
}

func (s *space) writeEntry(t *table, i int, w shadowpt.Words) {
	s.flush()
	b := s.burst.words[:0]
	for _, q := range w[:t.level.Words] {
		b = binary.LittleEndian.AppendUint64(b, q)
	}
	s.put(t, uint64(i)*uint64(len(b)), b)
}

// flush writes what was collected.
func (s *space) flush() {
	if b := &s.burst; b.n > 0 {
		s.put(b.t, uint64(b.first)*8, b.words[:b.n*8])
		b.t, b.n = nil, 0
	}
}

// put writes to a table, within one page of it.
func (s *space) put(t *table, off uint64, b []byte) {
	s.memory.write(t.addr+off, b)
	t.written |= 1 << (off / vram.PageSize)
}

// count keeps how many entries a table has.
func (s *space) count(t *table, n int, c *card.Change) {
	switch {
	case c.Unmaps():
		if t.set -= n; t.set == 0 {
			s.emptied = append(s.emptied, t)
		}
	case c.Flags&shadowpt.Over == 0:
		t.set += n
	}
}

// writePages writes a table's entries of a change from va to end. They are word, and an address.
func (s *space) writePages(t *table, va, end, word uint64, c *card.Change) {
	b, i := &s.burst, int(t.level.Index(va))
	for k := (va - c.VA) / c.Page; va < end; va, i, k = va+c.Page, i+1, k+1 {
		if b.t != t || i != b.first+b.n || i%pageWords == 0 {
			s.flush()
			b.t, b.first = t, i
		}
		binary.LittleEndian.PutUint64(b.words[b.n*8:], word|s.format.EncodeAddr(c.PageAddr(k)))
		b.n++
	}
}

// writeDir is writePages of a directory, whose entries are pages, sparse or nothing. Tables that such an
// entry names have no entries left.
func (s *space) writeDir(t *table, va, end, word uint64, c *card.Change) {
	for k := (va - c.VA) / c.Page; va < end; va, k = va+c.Page, k+1 {
		i, pde := int(t.level.Index(va)), shadowpt.PDE{Sparse: c.Flags&shadowpt.Sparse != 0}
		if !pde.Sparse {
			pde.Page = word | s.format.EncodeAddr(c.PageAddr(k))
		}
		for part := range t.kids {
			if k := t.kid(i, part); k != nil {
				s.detach(k)
			}
		}
		s.writeEntry(t, i, t.level.Encode(pde))
	}
}
