package aperture

import "cmp"

// entry is what a slot shows: nothing of VRAM, or a page number plus one.
type entry uint32

const nothing entry = 0

func shows(page uint32) entry { return entry(page + 1) }

// slot is one page of a mapped window. Slots are numbered through all windows, those of
// windows with a higher priority first.
type slot uint32

// inCard is the backing of a page whose bytes are in the card's own memory.
const inCard slot = 1<<32 - 1

// slotState is the Set's state of a slot.
type slotState struct {
	shows      entry
	resident   *page  // the page that it backs, or nil
	alias      *alias // its role as an alias, or nil
	next, prev slot   // the other slots that show the same page
}

// page is a page of VRAM that some slot shows, or that is in a slot.
type page struct {
	n       uint32
	first   slot // of the slots that show it, or inCard
	backing slot
	aliases []*alias
	queued  bool // its slots have changed since it was last placed
	direct  bool // reported to the owner as reached without a trap
}

// kind returns which window a slot is in, and its page there.
func (s *Set) kind(at slot) (Kind, uint32) {
	k := BAR3
	for at >= s.base[k+1] {
		k++
	}
	return k, uint32(at - s.base[k])
}

func (s *Set) window(at slot) Kind {
	k, _ := s.kind(at)
	return k
}

func (s *Set) sameWindow(a, b slot) bool { return s.window(a) == s.window(b) }

// slotOf returns the slot of a page of BAR1 or BAR3. The poll area has none.
func (s *Set) slotOf(k Kind, n uint32) (at slot, mapped bool) {
	if k == BAR1 && (n < s.cfg.pollPages() || s.base[BAR1] == s.base[BAR1+1]) {
		return inCard, false
	}
	return s.base[k] + slot(n), true
}

// backing returns where page number n is.
func (s *Set) backing(n uint32) slot {
	if p := s.pages[n]; p != nil {
		return p.backing
	}
	return inCard
}

func (s *Set) enqueue(p *page) {
	if !p.queued {
		p.queued = true
		s.queue = append(s.queue, p)
	}
}

// show notes what a slot shows from now on. An alias there is merged a last time.
func (s *Set) show(at slot, e entry) {
	st := &s.slots[at]
	if st.shows == e {
		return
	}
	if st.alias != nil {
		s.flush(st.alias)
		s.drop(st.alias)
	}
	if st.shows != nothing {
		p := s.pages[uint32(st.shows-1)]
		if st.next != inCard {
			s.slots[st.next].prev = st.prev
		}
		if st.prev == inCard {
			p.first = st.next
		} else {
			s.slots[st.prev].next = st.next
		}
		s.enqueue(p)
	}
	st.shows = e
	if e == nothing {
		return
	}
	n := uint32(e - 1)
	p := s.pages[n]
	if p == nil {
		p = &page{n: n, first: inCard, backing: inCard}
		s.pages[n] = p
	}
	st.next, st.prev = p.first, inCard
	if p.first != inCard {
		s.slots[p.first].prev = at
	}
	p.first = at
	s.enqueue(p)
}

// showing reports whether a slot shows a page.
func (s *Set) showing(p *page, at slot) bool { return at != inCard && s.slots[at].shows == shows(p.n) }

// wanted returns the slot that should back a page: in the window of the highest priority that
// shows it, and if possible the present one.
func (s *Set) wanted(p *page) slot {
	best := inCard
	for at := p.first; at != inCard; at = s.slots[at].next {
		best = min(best, at)
	}
	if s.showing(p, p.backing) && s.sameWindow(p.backing, best) {
		return p.backing
	}
	return best
}

// inPRAMIN ranks a page that PRAMIN shows, or that is there, before all others.
func (s *Set) inPRAMIN(p *page) int {
	if p.backing != inCard && s.window(p.backing) == PRAMIN {
		return 0
	}
	for at := p.first; at != inCard; at = s.slots[at].next {
		if s.window(at) == PRAMIN {
			return 0
		}
	}
	return 1
}

func (s *Set) praminFirst(a, b *page) int { return cmp.Compare(s.inPRAMIN(a), s.inPRAMIN(b)) }
