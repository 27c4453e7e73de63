package shadowpt

import (
	"math"
	"sync/atomic"
)

// Watch records which pages of a guest's VRAM hold shadowed tables, and which of those may
// have changed since a [Tracker] examined them. It is the part of a Tracker that any
// goroutine may call, without a lock.
//
// A table is added to the sets before it is read. A write is made before it is reported,
// first by its lines and then by its page. So either the examination of the page sees the
// write, or the page is examined again.
type Watch struct {
	pages  uint64
	tables pageSet // pages that a Tracker follows
	dirty  pageSet // of tables: written since the last look
	// lines are the written parts of a page in dirty. More may be marked than was written,
	// also for a page not yet in dirty. Loose pages may have changed elsewhere, too.
	lines []atomic.Uint64
	// direct pages are mapped: the guest writes them without a trap.
	direct pageSet
	// loose are tables that may change unseen: they are in direct, or engines may write
	// them. They are compared at each Update. Any goroutine adds pages, the Tracker removes
	// them.
	loose pageSet
}

func newWatch(vram uint64) Watch {
	n := (vram + SmallPage - 1) / SmallPage
	return Watch{
		pages: n, lines: make([]atomic.Uint64, n),
		tables: newPageSet(n), dirty: newPageSet(n), direct: newPageSet(n), loose: newPageSet(n),
	}
}

// Lines are the 64 equal parts of a page: bit n of a word for the part n.
const (
	lineSize = SmallPage / 64
	allLines = math.MaxUint64
)

// mark records a write to some lines of a page.
func (w *Watch) mark(page, lines uint64) (table bool) {
	if !w.tables.has(page) {
		return false
	}
	// Do this even if the lines are marked already: the atomic operation orders the write
	// before it for the goroutine that takes the marks or later finds the page in dirty. A
	// plain load could be executed before the store is visible.
	w.lines[page].Or(lines)
	w.dirty.add(page)
	return true
}

// written takes the marked lines of a page.
func (w *Watch) written(page uint64) uint64 { return w.lines[page].Swap(0) }

// Wrote records that n bytes of the guest's VRAM at addr were written, and reports whether
// a table lies there. Addresses outside the VRAM are ignored.
func (w *Watch) Wrote(addr, n uint64) (table bool) {
	if n == 0 || addr/SmallPage >= w.pages {
		return false
	}
	end := addr + min(n-1, w.pages*SmallPage-1-addr) // the last byte
	first, last := addr/SmallPage, end/SmallPage
	from := uint64(allLines) << (addr % SmallPage / lineSize)
	to := uint64(allLines) >> (63 - end%SmallPage/lineSize)
	if first == last {
		return w.mark(first, from&to)
	}
	table = w.mark(first, from)
	for p := first + 1; p < last; {
		if p%64 == 0 && w.tables.word(p) == 0 { // skip 64 pages without tables
			p += 64
			continue
		}
		table = w.mark(p, allLines) || table
		p++
	}
	return w.mark(last, to) || table
}

// Untrapped records whether the guest can write n bytes of its VRAM at addr, in whole
// pages, without a trap. Switch it on before the first such write can happen and off after
// the last one.
func (w *Watch) Untrapped(addr, n uint64, on bool) {
	for p := addr / SmallPage; p < min((addr+n+SmallPage-1)/SmallPage, w.pages); p++ {
		if !on {
			// The page stays in loose, for a last comparison.
			w.direct.remove(p)
			continue
		}
		w.direct.add(p)
		if w.tables.has(p) {
			w.loose.add(p)
		}
	}
}
