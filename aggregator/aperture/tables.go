package aperture

import (
	"github.com/umbra-gpu/umbra/shadowpt"
)

const (
	pageShift = shadowpt.SmallShift
	pageSize  = shadowpt.SmallPage
	perBig    = shadowpt.BigPage / shadowpt.SmallPage
	chunk     = 4096 // bytes of a table that are read and compared at a time
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
	kind  Kind
	pages uint32 // of the window
	vram  uint32 // pages of VRAM
	dirs  []directory
	buf   [chunk]byte
}

// directory is what one directory entry covers of a window.
type directory struct {
	first uint32 // page of the window
	pages uint32
	pde   uint64 // as the tables were read by it
	span  uint32 // pages that the tables answer for
	big   table
	small table
}

// table is a page table with its last content.
type table struct {
	at   shadowpt.Table
	seen []byte // nil: all of it is zero
}

func newScanner(b *Binding, kind Kind, pages, vram uint32) *scanner {
	s := &scanner{Binding: b, kind: kind, pages: pages, vram: vram}
	for first := uint32(0); first < pages; first += shadowpt.SmallEntries {
		s.dirs = append(s.dirs, directory{first: first, pages: min(pages-first, shadowpt.SmallEntries)})
	}
	return s
}

// scan reads the tables and calls show for the pages that may have changed: all pages of a
// table that was replaced, else those whose entries changed.
func (s *scanner) scan(m shadowpt.Tables, stats *Stats, show func(page uint32, e entry)) {
	stats.Scans.Add(1)
	for i := range s.dirs {
		s.scanDir(&s.dirs[i], m, stats, show)
	}
}

func (s *scanner) scanDir(d *directory, m shadowpt.Tables, stats *Stats, show func(uint32, entry)) {
	pde := s.readPDE(d, m)
	span := s.span(d, pde)
	all := pde != d.pde || span != d.span
	d.pde, d.span = pde, span
	d.big.at, d.small.at = shadowpt.DecodePDE(pde).Big, shadowpt.DecodePDE(pde).Small
	// Changed entries of the big table first: a small entry is decoded together with the
	// big one over it.
	bigs, smalls := (d.pages+perBig-1)/perBig, d.pages
	s.read(&d.big, bigs, m, stats, func(i uint32) {
		if !all {
			s.group(d, i, stats, show)
		}
	})
	s.read(&d.small, smalls, m, stats, func(i uint32) {
		if !all {
			show(d.first+i, s.entry(d, i, stats))
		}
	})
	if all {
		for i := range bigs {
			s.group(d, i, stats, show)
		}
	}
}

// group shows the small pages over which big entry i lies.
func (s *scanner) group(d *directory, i uint32, stats *Stats, show func(uint32, entry)) {
	for n := i * perBig; n < min((i+1)*perBig, d.pages); n++ {
		show(d.first+n, s.entry(d, n, stats))
	}
}

func (s *scanner) readPDE(d *directory, m shadowpt.Tables) uint64 {
	at := uint64(d.first) << pageShift
	q := s.buf[:8]
	if !s.On || !m.ReadTable(s.Space.Target, s.Space.Dir+at/shadowpt.DirSpan*8, q) {
		return 0
	}
	return le.Uint64(q)
}

// span is how many pages of the directory's the tables cover: at most their length, and the
// size of the space.
func (s *scanner) span(d *directory, pde uint64) uint32 {
	base := uint64(d.first) << pageShift
	if !s.On || base > s.Space.Limit {
		return 0
	}
	n := min(s.Space.Limit-base, shadowpt.DirSpan-1)>>pageShift + 1
	return uint32(min(n, shadowpt.SmallEntries>>shadowpt.DecodePDE(pde).Size, uint64(d.pages)))
}

// read updates n entries of a table, and calls changed for those that differ.
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
		for i := 0; i < len(now); i += 8 {
			if le.Uint64(old[i:]) != le.Uint64(now[i:]) {
				copy(old[i:i+8], now[i:i+8])
				stats.EntriesChanged.Add(1)
				changed(uint32(off+i) / 8)
			}
		}
	}
}

// entry is what page i of a directory shows: a valid big page wins over a small
// one, as in a walk.
func (s *scanner) entry(d *directory, i uint32, stats *Stats) entry {
	if i >= d.span {
		return nothing
	}
	if pte := d.big.get(i / perBig); pte.Valid {
		return s.of(pte, i%perBig, stats)
	}
	return s.of(d.small.get(i), 0, stats)
}

func (t *table) get(i uint32) shadowpt.PTE {
	if t.seen == nil {
		return shadowpt.PTE{}
	}
	return shadowpt.DecodePTE(le.Uint64(t.seen[i*8:]))
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
