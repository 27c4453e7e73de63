package shadowpt

import "math/bits"

// Bounds on what is collected for one call of the card: changes, and addresses of pages.
const (
	maxChanges = 256
	maxAddrs   = 2048
)

// output collects the changes of one shadow at a time. Pages that continue one another become one
// change; attributes are decoded only for its first page.
type output struct {
	of      *Shadow
	run     run
	pending []Change
	addrs   []uint64 // of the changes, and of the run
}

// run is the change that may be continued.
type run struct {
	va, end uint64 // equal: there is none
	shift   uint8  // of its pages
	over    bool   // they replace others, or are unmapped
	// Words of the first page, and of one that would follow in memory: none, once addresses are listed.
	first, next, step uint64
	list              int // where its addresses begin in output.addrs
}

// emit notes that the page at va, where the card has the word was, becomes that of now.
func (s *Shadow) emit(va uint64, shift uint8, was, now uint64) {
	out := &s.work.out
	r := &out.run
	if va != r.end || shift != r.shift || (now^r.first)&attributes != 0 || r.over != (was != 0) || out.of != s ||
		s.wasRefused(va, shift) || now != r.next && !out.scatter() {
		out.begin(s)
		if s.accept(va, shift) {
			if was = 0; now == 0 {
				return
			}
		}
		*r = run{va: va, end: va, shift: shift, over: was != 0, first: now, next: now, list: len(out.addrs)}
		if now&uint64(Mapped) != 0 {
			r.step = 1 << (shift - pageShift + addrShift)
		}
	}
	r.end += 1 << shift
	if r.next += r.step; len(out.addrs) > r.list {
		out.addrs = append(out.addrs, addressOf(now))
	}
}

// scatter lets the run continue anywhere in memory, if there is room to list addresses. Pages that follow
// one another remain a change without a list.
func (o *output) scatter() bool {
	r := &o.run
	if len(o.addrs) >= maxAddrs || len(o.addrs) == r.list && r.end-r.va > 1<<r.shift {
		return false
	}
	if len(o.addrs) == r.list {
		o.addrs = append(o.addrs, addressOf(r.first))
		r.next, r.step = 0, 0
	}
	return true
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
	list := r.list
	if *r = (run{}); len(o.addrs) > list {
		c.Addrs = o.addrs[list:]
	}
	if !c.Unmaps() {
		o.of.work.take(changeCost)
		if o.of.lacks(&c) {
			o.of.refuse(c, ErrTables)
			o.addrs = o.addrs[:list]
			return
		}
	}
	if o.pending = append(o.pending, c); len(o.pending) == maxChanges || len(o.addrs) >= maxAddrs {
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
	defer func() { o.pending, o.addrs = o.pending[:0], o.addrs[:0] }() // also after a panic
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
		o.of, o.pending, o.addrs, o.run = nil, o.pending[:0], o.addrs[:0], run{}
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
		was, n := s.wasRefused(rest.VA, shift), uint64(0)
		for ; n < rest.Size && s.wasRefused(rest.VA+n, shift) == was; n += rest.Page {
			s.accept(rest.VA+n, shift)
		}
		c, rest = rest.split(n)
		if was {
			c.Flags &^= Over
		}
		if !was || !c.Unmaps() {
			s.applyOne(c)
		}
	}
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
