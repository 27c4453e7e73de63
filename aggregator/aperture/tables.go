package aperture

import (
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	pageShift = shadowpt.SmallShift
	pageSize  = shadowpt.SmallPage
	chunk     = 4096 // bytes of a table that are read and compared at a time
)

// Tables of a node and of a directory entry, as indices.
const (
	big   = 0
	small = 1
)

// Binding is the address space that a BAR shows.
type Binding struct {
	On    bool // there are tables
	Space shadowpt.Space
}

// scanner reads what a BAR shows. It caches the entries that it has read, so that a table
// that did not change costs a comparison.
type scanner struct {
	*Binding
	format *shadowpt.Format
	group  uint32 // small pages in the range of a big one
	kind   Kind
	vram   uint32 // pages of VRAM
	root   node
	buf    [chunk]byte
}

// node is a directory, or what an entry of the last directory names.
type node struct {
	first uint32 // page of the window
	pages uint32
	pde   shadowpt.PDE // as the tables were read by it
	span  uint32       // pages that the tables answer for
	table [2]table     // a directory is the small one
	below []*node      // by entry of the directory; nil: it names nothing
}

// table is a page table with its last content.
type table struct {
	at   shadowpt.Table
	seen []byte // nil: all of it is zero
}

func newScanner(f *shadowpt.Format, b *Binding, kind Kind, pages, vram uint32) *scanner {
	return &scanner{
		Binding: b, format: f, group: uint32(f.Pages[big].Span() / f.Pages[small].Span()), kind: kind, vram: vram,
		root: node{pages: pages},
	}
}

// show notes what a page of the window shows.
type show func(page uint32, e entry)

// scan reads the tables and calls show for the pages that may have changed: all pages of a
// table that was replaced, else those whose entries changed.
func (s *scanner) scan(m shadowpt.Tables, stats *Stats, show show) {
	stats.Scans.Add(1)
	s.root.pde = shadowpt.PDE{Small: shadowpt.Table{Present: s.On, Target: s.Space.Target, Addr: s.Space.Dir}}
	s.scanDir(&s.root, 0, m, stats, show)
}

// scanDir reads a directory and what it names.
func (s *scanner) scanDir(n *node, depth int, m shadowpt.Tables, stats *Stats, show show) {
	level := &s.format.Dirs[depth]
	span := uint32(min(level.Span()>>pageShift, uint64(n.pages)))
	if n.below == nil {
		n.below = make([]*node, (n.pages+span-1)/span)
	}
	dir := &n.table[small]
	dir.at = n.pde.Small
	s.read(dir, uint32(len(n.below))*uint32(level.Words), m, stats, nil)
	for i := range n.below {
		pde, sub := level.Decode(dir.words(i, level.Words)), n.below[i]
		none := pde == shadowpt.PDE{}
		if sub == nil {
			if none {
				continue
			}
			at := n.first + uint32(i)*span
			sub = &node{first: at, pages: min(span, n.first+n.pages-at)}
			n.below[i] = sub
		}
		if depth < len(s.format.Dirs)-1 {
			sub.pde = pde
			s.scanDir(sub, depth+1, m, stats, show)
		} else {
			s.scanPages(sub, pde, m, stats, show)
		}
		if none {
			n.below[i] = nil
		}
	}
}

// scanPages reads the page tables that an entry of the last directory names.
func (s *scanner) scanPages(n *node, pde shadowpt.PDE, m shadowpt.Tables, stats *Stats, show show) {
	span := s.span(n, pde.Size)
	all := pde != n.pde || span != n.span
	n.pde, n.span = pde, span
	n.table[big].at, n.table[small].at = pde.Big, pde.Small
	// Changed entries of the big table first: a small entry is decoded together with the
	// big one over it.
	bigs, smalls := (n.pages+s.group-1)/s.group, n.pages
	s.read(&n.table[big], bigs, m, stats, func(i uint32) {
		if !all {
			s.cover(n, i, stats, show)
		}
	})
	s.read(&n.table[small], smalls, m, stats, func(i uint32) {
		if !all {
			show(n.first+i, s.entry(n, i, stats))
		}
	})
	if all {
		for i := range bigs {
			s.cover(n, i, stats, show)
		}
	}
}

// cover shows the small pages over which big entry i lies.
func (s *scanner) cover(n *node, i uint32, stats *Stats, show show) {
	for k := i * s.group; k < min((i+1)*s.group, n.pages); k++ {
		show(n.first+k, s.entry(n, k, stats))
	}
}

// span is how many pages of the node the tables cover: at most their length, and the size of the
// space.
func (s *scanner) span(n *node, size uint8) uint32 {
	base := uint64(n.first) << pageShift
	if !s.On || base > s.Space.Limit {
		return 0
	}
	last := s.format.Dirs[len(s.format.Dirs)-1].Span()
	return uint32(min((s.Space.Limit-base)>>pageShift+1, last>>size>>pageShift, uint64(n.pages)))
}

// read updates n words of a table, and calls changed for those that differ.
func (s *scanner) read(t *table, n uint32, m shadowpt.Tables, stats *Stats, changed func(i uint32)) {
	if !t.at.Present {
		t.seen = nil
		return
	}
	if t.seen == nil {
		t.seen = make([]byte, n*8)
	}
	stats.EntriesScanned.Add(uint64(n))
	for off := 0; off < len(t.seen); off += chunk {
		old := t.seen[off:min(off+chunk, len(t.seen))]
		if m.SameTable(t.at.Target, t.at.Addr+uint64(off), old) {
			continue
		}
		now := s.buf[:len(old)]
		if !m.ReadTable(t.at.Target, t.at.Addr+uint64(off), now) {
			clear(now)
		}
		if changed == nil {
			copy(old, now)
			continue
		}
		for i := 0; i < len(now); i += 8 {
			if le.Uint64(old[i:]) != le.Uint64(now[i:]) {
				copy(old[i:i+8], now[i:i+8])
				stats.EntriesChanged.Add(1)
				changed(uint32(off+i) / 8)
			}
		}
	}
}

// word is word i of a table.
func (t *table) word(i int) uint64 {
	if t.seen == nil {
		return 0
	}
	return le.Uint64(t.seen[i*8:])
}

// words is entry i of a directory whose entries have n words.
func (t *table) words(i int, n uint8) (w shadowpt.Words) {
	for k := range int(n) {
		w[k] = t.word(i*int(n) + k)
	}
	return w
}

// entry is what page i of a node shows. As in a walk, a big page that means something wins over a
// small one.
func (s *scanner) entry(n *node, i uint32, stats *Stats) entry {
	if i >= n.span {
		return nothing
	}
	if n.pde.Page != 0 {
		return s.of(s.format.DecodePTE(n.pde.Page), i, stats)
	}
	pte := s.format.DecodePTE(n.table[big].word(int(i / s.group)))
	if pte.Valid || pte.Sparse || pte.NoSmall {
		return s.of(pte, i%s.group, stats)
	}
	return s.of(s.format.DecodePTE(n.table[small].word(int(i))), 0, stats)
}

// of converts a page entry to the entry of its slot.
func (s *scanner) of(pte shadowpt.PTE, in uint32, stats *Stats) entry {
	page := pte.Addr>>pageShift + uint64(in)
	switch {
	case !pte.Valid:
		return nothing
	case pte.Supervisor:
		stats.Supervisor.Add(s.kind, 1)
		return nothing
	case pte.Target != shadowpt.VRAM:
		stats.System.Add(s.kind, 1)
		return nothing
	case page >= uint64(s.vram):
		stats.Outside.Add(s.kind, 1)
		return nothing
	}
	if pte.ReadOnly {
		stats.ReadOnly.Add(s.kind, 1)
	}
	return shows(uint32(page))
}
