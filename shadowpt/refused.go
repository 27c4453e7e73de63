package shadowpt

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// span is the range of one directory entry, for pages of a size.
type span struct{ page, at uint64 }

// spanOf returns the span in which a change begins, and whether it also ends there.
func (s *Shadow) spanOf(c *Change) (at span, whole bool) {
	part := max(s.format.last().Span(), c.Page)
	return span{c.Page, c.VA / part}, c.VA/part == (c.VA+c.Size-1)/part
}

// lacks reports whether the card has no memory for the tables of a change.
func (s *Shadow) lacks(c *Change) bool {
	if len(s.lacking) == 0 || c.Unmaps() || c.Flags&Over != 0 {
		return false
	}
	at, whole := s.spanOf(c)
	_, ok := s.lacking[at]
	return ok && whole
}

// A refused page is one that the card does not have, although the words of its node say so.
// Refused pages are sets by size and address, for as many neighbours as a page has entries.
type (
	refusedAt struct {
		shift uint8
		group uint64 // address / (pageEntries << shift)
	}
	refusedSet [pageEntries / 64]uint64
)

func refusedPlace(va uint64, shift uint8) (at refusedAt, word, bit uint64) {
	i := va >> shift
	return refusedAt{shift, i / pageEntries}, i % pageEntries / 64, 1 << (i % 64)
}

// refuse notes that the card refused a change. It offers the parts of a large one again, as large as
// what one directory entry covers.
func (s *Shadow) refuse(c Change, err error) {
	if c.Unmaps() {
		panic(fmt.Sprintf("shadowpt: the card refused to unmap %#x bytes at %#x: %v", c.Size, c.VA, err))
	}
	at, whole := s.spanOf(&c)
	if !whole {
		part := max(s.format.last().Span(), c.Page)
		c.Flags &^= Over
		for c.Size > 0 {
			var first Change
			first, c = c.split(min(part-c.VA%part, c.Size))
			s.applyOne(first)
		}
		return
	}
	if errors.Is(err, ErrTables) {
		s.Counts.NoRoom++
		if s.lacking == nil {
			s.lacking = make(map[span]struct{})
		}
		s.lacking[at] = struct{}{}
	} else {
		s.Counts.Refused++
	}
	shift := uint8(bits.TrailingZeros64(c.Page))
	for va := c.VA; va < c.VA+c.Size; va += c.Page {
		s.noteRefused(va, shift)
	}
}

func (s *Shadow) noteRefused(va uint64, shift uint8) {
	if s.refused == nil {
		s.refused = make(map[refusedAt]*refusedSet)
	}
	at, word, bit := refusedPlace(va, shift)
	set := s.refused[at]
	if set == nil {
		set = new(refusedSet)
		s.refused[at] = set
	}
	set[word] |= bit
}

// wasRefused reports whether a page was refused.
func (s *Shadow) wasRefused(va uint64, shift uint8) bool {
	if len(s.refused) == 0 {
		return false
	}
	at, word, bit := refusedPlace(va, shift)
	set := s.refused[at]
	return set != nil && set[word]&bit != 0
}

// accept is wasRefused, and forgets that.
func (s *Shadow) accept(va uint64, shift uint8) bool {
	if !s.wasRefused(va, shift) {
		return false
	}
	at, word, bit := refusedPlace(va, shift)
	set := s.refused[at]
	if set[word] &^= bit; *set == (refusedSet{}) {
		delete(s.refused, at)
	}
	return true
}

// retry offers the refused pages again, as many as the bound on work allows.
func (s *Shadow) retry() {
	was := s.refused
	s.refused = nil
	order := make([]refusedAt, 0, len(was))
	for at := range was {
		order = append(order, at)
	}
	slices.SortFunc(order, func(a, b refusedAt) int { return cmp.Compare(a.group<<a.shift, b.group<<b.shift) })
	for _, at := range order {
		if first := at.group * pageEntries << at.shift; s.work.Left == 0 || s.lacks(&Change{VA: first, Size: 1 << at.shift, Page: 1 << at.shift, Flags: Mapped}) {
			s.keepRefused(at, was[at])
			continue
		}
		for w, m := range was[at] {
			for ; m != 0; m &= m - 1 {
				va := (at.group*pageEntries + uint64(w*64+bits.TrailingZeros64(m))) << at.shift
				switch word := s.wordAt(va, at.shift); {
				case word == 0:
				case s.work.take(pageCost):
					s.emit(va, at.shift, 0, word)
				default:
					s.noteRefused(va, at.shift)
				}
			}
		}
	}
}

// keepRefused keeps refused pages that are not offered again.
func (s *Shadow) keepRefused(at refusedAt, set *refusedSet) {
	if s.refused == nil {
		s.refused = make(map[refusedAt]*refusedSet)
	}
	if now := s.refused[at]; now != nil {
		for w := range now {
			set[w] |= now[w]
		}
	}
	s.refused[at] = set
	s.work.cut = s.work.cut || s.work.Left == 0
}

// wordAt returns the word of the page of a size at va.
func (s *Shadow) wordAt(va uint64, shift uint8) uint64 {
	n := s.root
	for level := range s.format.Dirs {
		l := &s.format.Dirs[level]
		if i := int(l.Index(va)); l.Shift == shift {
			return n.have[small].word(i)
		} else if n = n.kid(i); n == nil {
			return 0
		}
	}
	for part := range s.format.Pages {
		if l := &s.format.Pages[part]; l.Shift == shift {
			return n.have[part].word(int(l.Index(va)))
		}
	}
	return 0
}
