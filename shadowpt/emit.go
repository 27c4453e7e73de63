package shadowpt

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// maxChanges is how many changes are collected for one call of the card.
const maxChanges = 256

// output collects the changes of one shadow at a time. Pages that continue one another become one
// change; entries are decoded only for its first page.
type output struct {
	of      *Shadow
	run     run
	pending []Change
}

// run is the change that may be continued.
type run struct {
	va, end uint64 // equal: there is none
	shift   uint8  // of its pages
	over    bool   // they replace others, or are unmapped
	// Words of the first page and of one that would continue the run.
	first, next, step uint64
}

// emit notes that the page at va, where the card has the word was, becomes that of now.
func (s *Shadow) emit(va uint64, shift uint8, was, now uint64) {
	out := &s.work.out
	r := &out.run
	if va != r.end || now != r.next || shift != r.shift || r.over != (was != 0) || out.of != s || s.wasRefused(va, shift) {
		out.begin(s)
		if s.accept(va, shift) {
			if was = 0; now == 0 {
				return
			}
		}
		*r = run{va: va, end: va, shift: shift, over: was != 0, first: now, next: now}
		if now&uint64(Mapped) != 0 {
			r.step = 1 << (shift - pageShift + addrShift)
		}
	}
	r.end += 1 << shift
	r.next += r.step
}

// begin ends the run and what is of another shadow. The card may refuse some of it.
func (o *output) begin(s *Shadow) {
	if o.of != s {
		o.flush()
		o.of = s
	}
	o.close()
}

// close turns the run into a change.
func (o *output) close() {
	r := &o.run
	if r.va == r.end {
		return
	}
	var c Change
	if r.first != 0 {
		if c = mapping(r.first); r.over {
			c.Flags |= Over
		}
	}
	c.VA, c.Size, c.Page = r.va, r.end-r.va, 1<<r.shift
	*r = run{next: noWord}
	if o.pending = append(o.pending, c); len(o.pending) == maxChanges {
		o.apply()
	}
}

// flush gives the card what was collected.
func (o *output) flush() {
	o.close()
	o.apply()
	o.of = nil
}

func (o *output) apply() {
	s, list := o.of, o.pending
	if len(list) == 0 {
		return
	}
	done, err := s.card.Apply(list)
	for i := range list[:done] {
		s.applied(&list[i])
	}
	if done < len(list) {
		s.refuse(list[done], err)
		for _, c := range list[done+1:] {
			s.applyAfter(c)
		}
	}
	o.pending = o.pending[:0]
}

// applyAfter applies a change that was collected before it was known that pages were refused.
func (s *Shadow) applyAfter(c Change) {
	if c.Flags&Over == 0 && !c.Unmaps() {
		s.applyOne(c)
		return
	}
	shift := uint8(bits.TrailingZeros64(c.Page))
	for rest := c; rest.Size > 0; {
		c := rest
		was := s.wasRefused(c.VA, shift)
		for c.Size = 0; c.Size < rest.Size && s.wasRefused(c.VA+c.Size, shift) == was; c.Size += c.Page {
			s.accept(c.VA+c.Size, shift)
		}
		rest = rest.from(c.Size)
		if was {
			c.Flags &^= Over
		}
		if !was || !c.Unmaps() {
			s.applyOne(c)
		}
	}
}

// from returns the change without its first n bytes.
func (c Change) from(n uint64) Change {
	c.VA, c.Size = c.VA+n, c.Size-n
	if c.Flags&Mapped != 0 {
		c.Addr += n
	}
	return c
}

func (s *Shadow) applyOne(c Change) {
	one := [1]Change{c}
	if done, err := s.card.Apply(one[:]); done == 0 {
		s.refuse(c, err)
		return
	}
	s.applied(&c)
}

func (s *Shadow) applied(c *Change) {
	s.Counts.Rewritten += c.Pages()
	s.work.unmapped = s.work.unmapped || c.Unmaps()
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
	if part := max(s.format.last().Span(), c.Page); c.VA/part != (c.VA+c.Size-1)/part {
		c.Flags &^= Over
		for c.Size > 0 {
			first := c
			first.Size = min(part-c.VA%part, c.Size)
			s.applyOne(first)
			c = c.from(first.Size)
		}
		return
	}
	if errors.Is(err, ErrTables) {
		s.Counts.NoRoom++
	} else {
		s.Counts.Refused++
	}
	if s.refused == nil {
		s.refused = make(map[refusedAt]*refusedSet)
	}
	shift := uint8(bits.TrailingZeros64(c.Page))
	for va := c.VA; va < c.VA+c.Size; va += c.Page {
		at, word, bit := refusedPlace(va, shift)
		set := s.refused[at]
		if set == nil {
			set = new(refusedSet)
			s.refused[at] = set
		}
		set[word] |= bit
	}
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

// retry offers the refused pages again.
func (s *Shadow) retry() {
	was := s.refused
	s.refused = nil
	order := make([]refusedAt, 0, len(was))
	for at := range was {
		order = append(order, at)
	}
	slices.SortFunc(order, func(a, b refusedAt) int { return cmp.Compare(a.group<<a.shift, b.group<<b.shift) })
	for _, at := range order {
		for w, m := range was[at] {
			for ; m != 0; m &= m - 1 {
				va := (at.group*pageEntries + uint64(w*64+bits.TrailingZeros64(m))) << at.shift
				if word := s.wordAt(va, at.shift); word != 0 {
					s.emit(va, at.shift, 0, word)
				}
			}
		}
	}
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
