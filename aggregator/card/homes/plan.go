package homes

import "slices"

// entry is what a place shows: nothing of VRAM, or a page of it.
type entry uint32

const (
	nothing       entry = 0
	entryReadOnly entry = 1 << 31
)

// shows returns the entry of a place that shows a page of VRAM.
func shows(page uint32, readOnly bool) entry {
	e := entry(page + 1)
	if readOnly {
		e |= entryReadOnly
	}
	return e
}

// page returns which page a place shows.
func (e entry) page() (page uint32, ok bool) {
	return uint32(e&^entryReadOnly) - 1, e&^entryReadOnly != 0
}

// place is a page of a window. Places are numbered through all windows, those of
// stronger windows first.
type place uint32

// own is no place of a window: the card's own memory.
const own place = 1<<32 - 1

// planner knows what each place shows, and which place each page lives at. It is
// data: it moves nothing itself.
type planner struct {
	base   [Kinds + 1]place // of the first place of each window
	shows  []entry          // by place
	next   []place          // the next place that shows the same page
	prev   []place
	lodger []uint32 // by place: the page that lives there plus one
	pages  map[uint32]pageState

	touched []uint32 // pages whose places changed, and that were not planned since
	planned []uint32 // those of the last plan
	changed []place  // places whose entry changed
}

// pageState is a page that some place shows, or that lives at one.
type pageState struct {
	first   place // of the places that show it
	home    place
	touched bool
	direct  bool // the guest reaches it without a trap, as far as its owner knows
}

// change is a page that has to move.
type change struct {
	page     uint32
	from, to place
}

// newPlanner makes a planner for windows of so many pages.
func newPlanner(sizes [Kinds]uint32) *planner {
	p := &planner{pages: make(map[uint32]pageState)}
	for k, n := range sizes {
		p.base[k+1] = p.base[k] + place(n)
	}
	n := p.base[Kinds]
	p.shows = make([]entry, n)
	p.next = make([]place, n)
	p.prev = make([]place, n)
	p.lodger = make([]uint32, n)
	return p
}

// kind returns which window a place is of, and its page there.
func (p *planner) kind(at place) (Kind, uint32) {
	k := PollArea
	for at >= p.base[k+1] {
		k++
	}
	return k, uint32(at - p.base[k])
}

func (p *planner) state(page uint32) pageState {
	if s, ok := p.pages[page]; ok {
		return s
	}
	return pageState{first: own, home: own}
}

func (p *planner) put(page uint32, s pageState) {
	if s.first == own && s.home == own && !s.touched && !s.direct {
		delete(p.pages, page)
		return
	}
	p.pages[page] = s
}

func (p *planner) touch(page uint32, s pageState) {
	if !s.touched {
		s.touched = true
		p.touched = append(p.touched, page)
	}
	p.put(page, s)
}

// show notes what a place shows from now on.
func (p *planner) show(at place, e entry) {
	old := p.shows[at]
	if old == e {
		return
	}
	p.shows[at] = e
	p.changed = append(p.changed, at)
	if page, ok := old.page(); ok {
		p.unlink(page, at)
	}
	if page, ok := e.page(); ok {
		p.link(page, at)
	}
}

func (p *planner) link(page uint32, at place) {
	s := p.state(page)
	p.next[at], p.prev[at] = s.first, own
	if s.first != own {
		p.prev[s.first] = at
	}
	s.first = at
	p.touch(page, s)
}

func (p *planner) unlink(page uint32, at place) {
	s := p.state(page)
	next, prev := p.next[at], p.prev[at]
	if next != own {
		p.prev[next] = prev
	}
	if prev == own {
		s.first = next
	} else {
		p.next[prev] = next
	}
	p.touch(page, s)
}

// showing reports whether a place shows the page, so that writes through it count.
func (p *planner) showing(page uint32, at place) bool {
	return at != own && p.shows[at] == shows(page, false)
}

// wanted returns where a page belongs: in the strongest window that shows it to be
// written, at the first place there unless it lives at another already.
func (p *planner) wanted(page uint32) place {
	s := p.state(page)
	best := own
	for at := s.first; at != own; at = p.next[at] {
		if p.shows[at]&entryReadOnly == 0 {
			best = min(best, at)
		}
	}
	if best == own || !p.showing(page, s.home) {
		return best
	}
	want, _ := p.kind(best)
	have, _ := p.kind(s.home)
	if want == have {
		return s.home
	}
	return best
}

// plan returns which of the first n touched pages have to move, and forgets that they
// were touched. Those that were are pages, and the places whose entries changed since
// the last call are places, until the next call.
func (p *planner) plan(into []change, n int) (list []change, pages []uint32, places []place) {
	list = into
	n = min(n, len(p.touched))
	p.planned = append(p.planned[:0], p.touched[:n]...)
	p.touched = slices.Delete(p.touched, 0, n)
	for _, page := range p.planned {
		s := p.pages[page]
		s.touched = false
		if to := p.wanted(page); to != s.home {
			list = append(list, change{page, s.home, to})
		}
		p.put(page, s)
	}
	places = p.changed
	p.changed = p.changed[:0]
	return list, p.planned, places
}

// hurry puts the touched pages that the n places from at on show, or are the home of,
// before the others, and returns how many they are.
func (p *planner) hurry(at place, n int) int {
	wanted := make(map[uint32]bool, 2*n)
	for i := range place(n) {
		if page, ok := p.shows[at+i].page(); ok {
			wanted[page] = true
		}
		if p.lodger[at+i] != 0 {
			wanted[p.lodger[at+i]-1] = true
		}
	}
	first := make([]uint32, 0, len(p.touched))
	var others []uint32
	for _, page := range p.touched {
		if wanted[page] {
			first = append(first, page)
		} else {
			others = append(others, page)
		}
	}
	p.touched = append(first, others...)
	return len(first)
}

// waits puts a page behind the others again if the place that it is to be at is still
// the home of one that is to be planned.
func (p *planner) waits(page uint32, at place) bool {
	if p.lodger[at] == 0 || !p.state(p.lodger[at]-1).touched {
		return false
	}
	p.touch(page, p.state(page))
	return true
}

// moved notes where a page lives now.
func (p *planner) moved(page uint32, to place) {
	s := p.state(page)
	if s.home != own {
		p.lodger[s.home] = 0
	}
	if to != own {
		p.lodger[to] = page + 1
	}
	s.home = to
	p.put(page, s)
}

// turned reports whether a page is shown in some window now and was not, or the other
// way about, since the last call with on as it is.
func (p *planner) turned(page uint32, on bool) bool {
	s := p.state(page)
	if s.direct == on || (s.first != own) != on {
		return false
	}
	s.direct = on
	p.put(page, s)
	return true
}

// home returns where a page lives.
func (p *planner) home(page uint32) place { return p.state(page).home }

// others calls f for the places that show a page and are not its home.
func (p *planner) others(page uint32, f func(place)) {
	s := p.state(page)
	for at := s.first; at != own; at = p.next[at] {
		if at != s.home {
			f(at)
		}
	}
}
