package homes

import "slices"

// Entry is what a place shows: nothing of VRAM, or a page of it.
type Entry uint32

const (
	nothing       Entry = 0
	entryReadOnly Entry = 1 << 31
)

// shows returns the entry of a place that shows a page of VRAM.
func shows(page uint32, readOnly bool) Entry {
	e := Entry(page + 1)
	if readOnly {
		e |= entryReadOnly
	}
	return e
}

// page returns which page a place shows.
func (e Entry) page() (page uint32, ok bool) {
	return uint32(e&^entryReadOnly) - 1, e&^entryReadOnly != 0
}

// Place is a page of a window. Places are numbered through all windows, those of
// stronger windows first.
type Place uint32

// own is no place of a window: the card's own memory.
const own Place = 1<<32 - 1

// Planner knows what each place shows, and which place each page lives at. It is
// data: it moves nothing itself.
type Planner struct {
	base   [Kinds + 1]Place // of the first place of each window
	shows  []Entry          // by place
	next   []Place          // the next place that shows the same page
	prev   []Place
	lodger []uint32 // by place: the page that lives there plus one
	pages  map[uint32]pageState

	touched []uint32 // pages whose places changed, and that were not planned since
	planned []uint32 // those of the last plan
	changed []Place  // places whose entry changed
}

// pageState is a page that some place shows, or that lives at one.
type pageState struct {
	first   Place // of the places that show it
	home    Place
	touched bool
	direct  bool // the guest reaches it without a trap, as far as its owner knows
}

// Change is a page that has to move.
type Change struct {
	Page     uint32
	From, To Place
}

// newPlanner makes a planner for windows of so many pages.
func newPlanner(sizes [Kinds]uint32) *Planner {
	p := &Planner{pages: make(map[uint32]pageState)}
	for k, n := range sizes {
		p.base[k+1] = p.base[k] + Place(n)
	}
	n := p.base[Kinds]
	p.shows = make([]Entry, n)
	p.next = make([]Place, n)
	p.prev = make([]Place, n)
	p.lodger = make([]uint32, n)
	return p
}

// kind returns which window a place is of, and its page there.
func (p *Planner) kind(at Place) (Kind, uint32) {
	k := PollArea
	for at >= p.base[k+1] {
		k++
	}
	return k, uint32(at - p.base[k])
}

func (p *Planner) state(page uint32) pageState {
	if s, ok := p.pages[page]; ok {
		return s
	}
	return pageState{first: own, home: own}
}

func (p *Planner) put(page uint32, s pageState) {
	if s.first == own && s.home == own && !s.touched && !s.direct {
		delete(p.pages, page)
		return
	}
	p.pages[page] = s
}

func (p *Planner) touch(page uint32, s pageState) {
	if !s.touched {
		s.touched = true
		p.touched = append(p.touched, page)
	}
	p.put(page, s)
}

// show notes what a place shows from now on.
func (p *Planner) show(at Place, e Entry) {
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

func (p *Planner) link(page uint32, at Place) {
	s := p.state(page)
	p.next[at], p.prev[at] = s.first, own
	if s.first != own {
		p.prev[s.first] = at
	}
	s.first = at
	p.touch(page, s)
}

func (p *Planner) unlink(page uint32, at Place) {
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
func (p *Planner) showing(page uint32, at Place) bool {
	return at != own && p.shows[at] == shows(page, false)
}

// wanted returns where a page belongs: in the strongest window that shows it to be
// written, at the first place there unless it lives at another already.
func (p *Planner) wanted(page uint32) Place {
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
func (p *Planner) plan(into []Change, n int) (list []Change, pages []uint32, places []Place) {
	list = into
	n = min(n, len(p.touched))
	p.planned = append(p.planned[:0], p.touched[:n]...)
	p.touched = slices.Delete(p.touched, 0, n)
	for _, page := range p.planned {
		s := p.pages[page]
		s.touched = false
		if to := p.wanted(page); to != s.home {
			list = append(list, Change{page, s.home, to})
		}
		p.put(page, s)
	}
	places = p.changed
	p.changed = p.changed[:0]
	return list, p.planned, places
}

// hurry puts the touched pages that the n places from at on show, or are the home of,
// before the others, and returns how many they are.
func (p *Planner) hurry(at Place, n int) int {
	wanted := make(map[uint32]bool, 2*n)
	for place := at; place < at+Place(n); place++ {
		if page, ok := p.shows[place].page(); ok {
			wanted[page] = true
		}
		if p.lodger[place] != 0 {
			wanted[p.lodger[place]-1] = true
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
func (p *Planner) waits(page uint32, at Place) bool {
	if p.lodger[at] == 0 || !p.state(p.lodger[at]-1).touched {
		return false
	}
	p.touch(page, p.state(page))
	return true
}

// moved notes where a page lives now.
func (p *Planner) moved(page uint32, to Place) {
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
func (p *Planner) turned(page uint32, on bool) bool {
	s := p.state(page)
	if s.direct == on || (s.first != own) != on {
		return false
	}
	s.direct = on
	p.put(page, s)
	return true
}

// home returns where a page lives.
func (p *Planner) home(page uint32) Place { return p.state(page).home }

// others calls f for the places that show a page and are not its home.
func (p *Planner) others(page uint32, f func(Place)) {
	s := p.state(page)
	for at := s.first; at != own; at = p.next[at] {
		if at != s.home {
			f(at)
		}
	}
}
