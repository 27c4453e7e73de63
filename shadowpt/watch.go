package shadowpt

import (
	"math"
	"sync/atomic"
)

// Watch records what may have changed of the pages of a guest's VRAM that hold shadowed tables,
// since a [Tracker] examined them. It is the part of a Tracker that any goroutine may call,
// without a lock.
//
// A page is added to tables before it is read, and a write is made before it is reported. So
// either the read sees the write, or the page is examined again.
type Watch struct {
	pages  uint64
	tables pageSet // pages that a Tracker follows
	// Pages that may change without a trap: the guest has direct ones mapped, and engines may write
	// the others.
	direct, engines pageSet
	// marked are pages that may have been written, and lines says where. A write marks the lines
	// first, so that who finds the page finds them.
	marked pageSet
	lines  []atomic.Uint64
}

// pageSet is a set of page numbers below a bound. Any goroutine may change it.
type pageSet []atomic.Uint64

func newPageSet(pages uint64) pageSet { return make(pageSet, (pages+63)/64) }

// word returns the word that holds page: page n is bit n % 64.
func (s pageSet) word(page uint64) uint64 { return s[page/64].Load() }

func (s pageSet) has(page uint64) bool { return s.word(page)>>(page%64)&1 != 0 }

func (s pageSet) add(page uint64) { s[page/64].Or(1 << (page % 64)) }

func (s pageSet) remove(page uint64) { s[page/64].And(^(uint64(1) << (page % 64))) }

func newWatch(vram uint64) Watch {
	n := (vram + SmallPage - 1) / SmallPage
	return Watch{
		pages: n, lines: make([]atomic.Uint64, n),
		tables: newPageSet(n), direct: newPageSet(n), engines: newPageSet(n), marked: newPageSet(n),
	}
}

// Lines are the 64 equal parts of a page: bit n of a word for the part n.
const (
	lineSize = SmallPage / 64
	allLines = math.MaxUint64
)

// mark records a write to some lines of a page, if a table lies there. It does so even if they are
// marked already: the atomic operation orders the write before it for the goroutine that takes the marks.
func (w *Watch) mark(page, lines uint64) {
	if w.tables.has(page) {
		w.lines[page].Or(lines)
		w.marked.add(page)
	}
}

// mayDiffer has a bit for each page of page's word that may have changed since it was last examined.
func (w *Watch) mayDiffer(page uint64) uint64 {
	return w.marked.word(page) | w.direct.word(page) | w.engines.word(page)
}

// loose reports whether a page may change without a trap. What ends that marks the page afterwards,
// for a last comparison.
func (w *Watch) loose(page uint64) bool { return w.direct.has(page) || w.engines.has(page) }

// written takes the marks of a page: whoever examines it now sees those writes.
func (w *Watch) written(page uint64) (lines uint64) {
	w.marked.remove(page)
	return w.lines[page].Swap(0)
}

// Wrote records that n bytes of the guest's VRAM at addr were written. Addresses outside the VRAM
// are ignored.
func (w *Watch) Wrote(addr, n uint64) {
	if n == 0 || addr/SmallPage >= w.pages {
		return
	}
	end := addr + min(n-1, w.pages*SmallPage-1-addr) // the last byte
	first, last := addr/SmallPage, end/SmallPage
	from := uint64(allLines) << (addr % SmallPage / lineSize)
	to := uint64(allLines) >> (63 - end%SmallPage/lineSize)
	if first == last {
		w.mark(first, from&to)
		return
	}
	w.mark(first, from)
	for p := first + 1; p < last; {
		if p%64 == 0 && w.tables.word(p) == 0 { // skip 64 pages without tables
			p += 64
			continue
		}
		w.mark(p, allLines)
		p++
	}
	w.mark(last, to)
}

// Untrapped records whether the guest can write n bytes of its VRAM at addr, in whole
// pages, without a trap. Switch it on before the first such write can happen and off after
// the last one.
func (w *Watch) Untrapped(addr, n uint64, on bool) {
	for p := addr / SmallPage; p < min((addr+n+SmallPage-1)/SmallPage, w.pages); p++ {
		if on {
			w.direct.add(p)
			continue
		}
		w.direct.remove(p)
		w.mark(p, allLines) // for a last comparison
	}
}
