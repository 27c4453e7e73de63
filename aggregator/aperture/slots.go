package aperture

import (
	"cmp"
	"iter"
)

// entry is what a slot shows: nothing of VRAM, or a page number plus one.
type entry uint32

const nothing entry = 0

func shows(page uint32) entry { return entry(page + 1) }

// slot is one page of a mapped window. Slots are numbered through all windows, those of
// windows with a higher priority first.
type slot uint32

// inCard is the backing of a page whose bytes are in the card's own memory.
const inCard slot = 1<<32 - 1

// MapperState is what a Mapper knows besides the content of its files. The Mapper reads tables again if it has
// no copy of them.
type MapperState struct {
	BARs    [2]Binding // of BAR3 and BAR1
	Slots   []SlotState
	Pages   map[uint32]*PageState // by number
	Refused string                // why the card did not move pages, the last time
}

// SlotState is the state of a slot.
type SlotState struct {
	Shows      entry
	Resident   entry           // the page that it backs
	MergeBase  *[pageSize]byte // of an alias: what it had when it was last equal to its backing slot
	Next, Prev slot            // the other slots that show the same page
}

// PageState is the state of a page of VRAM that some slot shows, or that is in a slot.
type PageState struct {
	N       uint32
	First   slot // of the slots that show it, or inCard
	Backing slot
	Aliases []slot
	Queued  bool // its slots have changed since it was last placed
	Direct  bool // reported to the owner as reached without a trap
}

// kind returns which window a slot is in, and its page there.
func (s *Mapper) kind(at slot) (Kind, uint32) {
	k := BAR3
	for at >= s.base[k+1] {
		k++
	}
	return k, uint32(at - s.base[k])
}

func (s *Mapper) window(at slot) Kind {
	k, _ := s.kind(at)
	return k
}

func (s *Mapper) sameWindow(a, b slot) bool { return s.window(a) == s.window(b) }

// slotOf returns the slot of a page of BAR1 or BAR3. The poll area has none.
func (s *Mapper) slotOf(k Kind, n uint32) (at slot, mapped bool) {
	if k == BAR1 && (n < s.cfg.pollPages() || s.base[BAR1] == s.base[BAR1+1]) {
		return inCard, false
	}
	return s.base[k] + slot(n), true
}

// backing returns where page number n is.
func (s *Mapper) backing(n uint32) slot {
	if p := s.Pages[n]; p != nil {
		return p.Backing
	}
	return inCard
}

// resident returns the page that a slot backs, or nil.
func (s *Mapper) resident(at slot) *PageState {
	if e := s.Slots[at].Resident; e != nothing {
		return s.Pages[uint32(e-1)]
	}
	return nil
}

func (s *Mapper) enqueue(p *PageState) {
	if !p.Queued {
		p.Queued = true
		s.queue = append(s.queue, p)
	}
}

// show notes what a slot shows from now on. An alias there is merged a last time.
func (s *Mapper) show(at slot, e entry) {
	st := &s.Slots[at]
	if st.Shows == e {
		return
	}
	if st.Shows != nothing {
		p := s.Pages[uint32(st.Shows-1)]
		if st.MergeBase != nil {
			s.flush(p, at)
			s.drop(p, at)
		}
		if st.Next != inCard {
			s.Slots[st.Next].Prev = st.Prev
		}
		if st.Prev == inCard {
			p.First = st.Next
		} else {
			s.Slots[st.Prev].Next = st.Next
		}
		s.enqueue(p)
	}
	st.Shows = e
	if e == nothing {
		return
	}
	n := uint32(e - 1)
	p := s.Pages[n]
	if p == nil {
		p = &PageState{N: n, First: inCard, Backing: inCard}
		s.Pages[n] = p
	}
	st.Next, st.Prev = p.First, inCard
	if p.First != inCard {
		s.Slots[p.First].Prev = at
	}
	p.First = at
	s.enqueue(p)
}

// slotsOf lists the slots that show a page.
func (s *Mapper) slotsOf(p *PageState) iter.Seq[slot] {
	return func(yield func(slot) bool) {
		for at := p.First; at != inCard && yield(at); at = s.Slots[at].Next {
		}
	}
}

// showing reports whether a slot shows a page.
func (s *Mapper) showing(p *PageState, at slot) bool {
	return at != inCard && s.Slots[at].Shows == shows(p.N)
}

// wanted returns the slot that should back a page: in the window of the highest priority that
// shows it, and if possible the present one.
func (s *Mapper) wanted(p *PageState) slot {
	best := inCard
	for at := range s.slotsOf(p) {
		best = min(best, at)
	}
	if s.showing(p, p.Backing) && s.sameWindow(p.Backing, best) {
		return p.Backing
	}
	return best
}

// inPRAMIN ranks a page that PRAMIN shows, or that is there, before all others.
func (s *Mapper) inPRAMIN(p *PageState) int {
	if p.Backing != inCard && s.window(p.Backing) == PRAMIN {
		return 0
	}
	for at := range s.slotsOf(p) {
		if s.window(at) == PRAMIN {
			return 0
		}
	}
	return 1
}

func (s *Mapper) praminFirst(a, b *PageState) int { return cmp.Compare(s.inPRAMIN(a), s.inPRAMIN(b)) }
