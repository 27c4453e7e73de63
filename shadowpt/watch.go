package shadowpt

import (
	"math"
	"sync/atomic"
)

// Watch knows which pages of a guest's VRAM hold tables that are shadowed, and
// which of those may have changed since a [Tracker] looked at them. It is the
// part of a Tracker that others than its owner may call: any goroutine, without
// a lock.
//
// A table is put into the sets before it is read, and a write is made before it
// is told of, first by its lines and then by its page, so that of a write and a look
// at the same page either the look sees the write, or the page is looked at again.
type Watch struct {
	pages  uint64
	tables pageSet // pages that a Tracker follows
	dirty  pageSet // of tables: written since the last look
	// lines are where a page of dirty was written. More may be marked than was, also of
	// a page that is not in dirty, or not yet; and pages that are loose as well may have
	// changed elsewhere.
	lines []atomic.Uint64
	// direct pages are written by the guest without anybody being told.
	direct pageSet
	// loose are tables that may change unseen: they are in direct, or engines of
	// the card may write them. They are compared at each look. Pages are put in by
	// anybody and taken out by the Tracker.
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

// mark tells of a write to some lines of a page.
func (w *Watch) mark(page, lines uint64) (table bool) {
	if !w.tables.has(page) {
		return false
	}
	// Always, also if they are marked: by this the write itself is seen by whoever takes
	// the marks, or, later, finds the page in dirty. A processor may do a load, as that
	// of a mark, before its stores are seen.
	w.lines[page].Or(lines)
	w.dirty.add(page)
	return true
}

// written takes the lines of a page that a look compares.
func (w *Watch) written(page uint64) uint64 { return w.lines[page].Swap(0) }

// Wrote tells that n bytes of the guest's VRAM at addr have been written. It
// reports whether a table lies there. What lies outside the VRAM is nobody's.
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
		if p%64 == 0 && w.tables.word(p) == 0 { // of many pages most are passed over
			p += 64
			continue
		}
		table = w.mark(p, allLines) || table
		p++
	}
	return w.mark(last, to) || table
}

// Untrapped tells whether the guest writes n bytes of its VRAM at addr, whole
// pages, without Wrote being called: on before the first such write can happen,
// off after the last one has.
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
