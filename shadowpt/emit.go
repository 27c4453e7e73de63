package shadowpt

import "math/bits"

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
	if !c.Unmaps() {
		o.of.work.take(changeCost)
		if o.of.lacks(&c) {
			o.of.refuse(c, ErrTables)
			return
		}
	}
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
	defer func() { o.pending = o.pending[:0] }() // also after a panic
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
}

// forget drops what was collected for a shadow and is left after a panic.
func (o *output) forget(s *Shadow) {
	if o.of == s {
		o.of, o.pending, o.run = nil, o.pending[:0], run{next: noWord}
	}
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
	if s.lacks(&c) {
		s.refuse(c, ErrTables)
		return
	}
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
