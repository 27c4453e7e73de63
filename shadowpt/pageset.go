package shadowpt

import (
	"math/bits"
	"sync/atomic"
)

// pageSet is a set of page numbers below a bound. Any goroutine may add to it. Each level
// marks the nonzero words of the level below, so that emptying the set costs what is in it.
type pageSet struct {
	levels [][]atomic.Uint64 // the pages first
}

func newPageSet(pages uint64) pageSet {
	var s pageSet
	for n := pages; ; {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]atomic.Uint64, n))
		if n <= 1 {
			return s
		}
	}
}

func (s *pageSet) has(page uint64) bool {
	return s.levels[0][page/64].Load()>>(page%64)&1 != 0
}

// word returns the word that holds page: page n is bit n % 64.
func (s *pageSet) word(page uint64) uint64 { return s.levels[0][page/64].Load() }

// add adds a page. It visits every level even if the lowest bit is set: another goroutine
// may be about to set the bits above.
func (s *pageSet) add(page uint64) {
	for _, words := range s.levels {
		bit := uint64(1) << (page % 64)
		page /= 64
		if words[page].Load()&bit == 0 {
			words[page].Or(bit)
		}
	}
}

// remove removes a page. Upper levels may keep their bits; take then finds nothing.
func (s *pageSet) remove(page uint64) { s.levels[0][page/64].And(^(uint64(1) << (page % 64))) }

// take appends the members to list, lowest first, and empties the set. A page that is added
// concurrently is in list or still in the set.
func (s *pageSet) take(list []uint64) []uint64 {
	return s.takeWord(len(s.levels)-1, 0, list)
}

func (s *pageSet) takeWord(level int, word uint64, list []uint64) []uint64 {
	w := &s.levels[level][word]
	if w.Load() == 0 {
		return list
	}
	for m := w.Swap(0); m != 0; m &= m - 1 {
		at := word*64 + uint64(bits.TrailingZeros64(m))
		if level == 0 {
			list = append(list, at)
		} else {
			list = s.takeWord(level-1, at, list)
		}
	}
	return list
}
