package homes

import (
	"cmp"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// piece is pages that lie together and go to places that do.
type piece struct {
	page uint32
	n    uint32
	to   place
}

// apply makes homes and replicas follow what the places show now, of as many pages as
// the trap may still move. The rest follows with the traps that come. Set.mu is held.
func (s *Set) apply() { s.applyAt(s.budget()) }

// applyAt is apply for a trap that may still move n pages.
func (s *Set) applyAt(n int) {
	s.spend(n)
	s.stats.Deferred.Add(uint64(len(s.plan.touched)))
}

// follow makes homes and replicas follow for the next n pages: no more than n enter
// windows, and no more than n leave them. It returns how many it has looked at.
func (s *Set) follow(n int) int {
	changes, pages, places := s.plan.plan(s.changes[:0], n)
	s.changes = changes
	defer func() { s.pending.Store(len(s.plan.touched) > 0) }()
	if len(places) == 0 && len(pages) == 0 {
		return 0
	}
	began := time.Now()
	var along []uint32
	s.direct(pages, true)
	s.owner.Still(func() {
		s.agree(places, pages)
		s.dropChanged(places)
		s.adopt(changes)
		along = s.leave(changes, n)
		s.enter(changes)
	})
	s.replicate(pages)
	s.replicate(along)
	s.direct(pages, false)
	s.stats.MoveTime.Add(uint64(time.Since(began)))
	return len(pages)
}

// agree makes the replicas equal that are about to go, or whose pages may move. The
// first look may bring bytes to a home, the second takes them to the others.
func (s *Set) agree(places []place, pages []uint32) {
	look := func(at place) {
		if r := s.replicas[at]; r != nil && s.plan.home(r.page) != own {
			s.hold(r, pageSize)
		}
	}
	for range 2 {
		for _, at := range places {
			look(at)
		}
		for _, page := range pages {
			s.plan.others(page, look)
		}
	}
}

// direct tells the owner which pages the guest begins, or ceases, to reach without a
// trap.
func (s *Set) direct(pages []uint32, on bool) {
	for _, page := range pages {
		if s.plan.turned(page, on) {
			s.owner.Direct(uint64(page)<<pageShift, on)
		}
	}
}

// dropChanged ends replicas at places that show something else now.
func (s *Set) dropChanged(places []place) {
	var cleared []place
	for _, at := range places {
		r := s.replicas[at]
		if r == nil {
			continue
		}
		if page, ok := s.plan.shows[at].page(); ok && page == r.page {
			r.readOnly = s.plan.shows[at]&entryReadOnly != 0
			continue
		}
		s.drop(at)
		cleared = append(cleared, at)
	}
	s.clear(cleared)
}

// adopt moves pages to places that are replicas of them: the bytes are there
// already, and may be changing under the guest's hands.
func (s *Set) adopt(changes []change) {
	for i, c := range changes {
		r := s.replicas[c.to]
		if r == nil || r.page != c.page {
			continue
		}
		if c.from == own { // it was read-only, and nobody knows what the guest wrote there
			s.drop(c.to)
			continue
		}
		stays := s.plan.showing(c.page, c.from)
		fits := s.fits(s.leaving(c.page, 1) + 1)
		if !fits {
			s.stats.RunsRefused.Add(s.window(c.to), 1)
		}
		if !fits || !s.home(piece{c.page, 1, c.to}, card.Move{Adopt: true, Stay: stays}) {
			changes[i].to = c.from // it stays, and the stronger place is the replica
			if !stays {
				s.drop(c.to)
				changes[i].to = own
			}
			continue
		}
		agreed := r.agreed
		s.drop(c.to)
		if stays {
			s.add(c.from, &replica{page: c.page, agreed: agreed})
		}
		changes[i].to = c.from // done
	}
}

// enter brings pages to places that are free.
func (s *Set) enter(changes []change) {
	var list []piece
	for _, c := range changes {
		switch {
		case c.to == own || c.to == c.from:
		case s.plan.state(c.page).touched: // it leaves in a later trap
		case s.plan.waits(c.page, c.to):
		case s.plan.lodger[c.to] != 0,
			s.plan.home(c.page) != own && !s.plan.showing(c.page, c.from): // one that could not leave
			s.stats.MovesRefused.Add(s.window(c.to), 1)
		case s.plan.home(c.page) != own:
			s.hand(c)
		default:
			list = append(list, piece{c.page, 1, c.to})
		}
	}
	for _, p := range s.join(list) {
		switch {
		case !s.fits(1):
			s.stats.RunsRefused.Add(s.window(p.to), uint64(p.n))
		default:
			s.home(p, card.Move{})
		}
	}
}

// living is how many pages live in windows.
func (s *Set) living() (n int64) {
	for k := range s.stats.Homed {
		n += s.stats.Homed[k].Load()
	}
	return n
}

// hand moves a page from a place that goes on showing it to a stronger one. The
// guest may be writing to the old place: it becomes a replica, held against the
// bytes that were taken from it.
func (s *Set) hand(c change) {
	if len(s.order) >= s.cfg.Aliases {
		return // it stays, and replicate refuses the stronger place
	}
	if !s.fits(s.leaving(c.page, 1) + 1) {
		s.stats.RunsRefused.Add(s.window(c.to), 1) // it stays, and the stronger place is the replica
		return
	}
	agreed := make([]byte, pageSize)
	if !s.home(piece{c.page, 1, c.to}, card.Move{Kept: agreed, Stay: true}) {
		return
	}
	s.add(c.from, &replica{page: c.page, agreed: agreed})
}

// replicate makes replicas of what places show that are not the page's home.
func (s *Set) replicate(pages []uint32) {
	var cleared []place
	for _, page := range pages {
		home := s.plan.home(page)
		if home != own && s.plan.state(page).touched && !s.plan.showing(page, home) {
			continue // it leaves in a later trap
		}
		s.plan.others(page, func(at place) {
			r := s.replicas[at]
			switch {
			case s.plan.waits(page, at):
			case s.plan.lodger[at] != 0: // one that could not leave
			case home == own && s.plan.shows[at]&entryReadOnly == 0: // it was refused
				if r != nil {
					s.drop(at)
				}
				cleared = append(cleared, at)
			case r != nil:
			case len(s.order) >= s.cfg.Aliases:
				s.stats.Aliases.Add(s.window(at), 1)
				cleared = append(cleared, at)
			default:
				s.copyTo(at, page, home)
			}
		})
	}
	s.clear(cleared)
}

func (s *Set) copyTo(at place, page uint32, home place) {
	agreed := make([]byte, pageSize)
	if home == own {
		s.owner.ReadTable(shadowpt.VRAM, uint64(page)<<pageShift, agreed)
	} else {
		copy(agreed, s.bytes(home))
	}
	copy(s.bytes(at), agreed)
	s.add(at, &replica{page: page, readOnly: s.plan.shows[at]&entryReadOnly != 0, agreed: agreed})
}

// join sorts single pages and joins those that lie together on both sides.
func (s *Set) join(list []piece) []piece {
	slices.SortFunc(list, func(a, b piece) int { return cmp.Compare(a.page, b.page) })
	out := list[:0]
	for _, p := range list {
		if n := len(out); n > 0 && s.together(out[n-1], p) {
			out[n-1].n++
			continue
		}
		out = append(out, p)
	}
	return out
}

func (s *Set) together(a, b piece) bool {
	last := a.page + a.n - 1
	if b.page != last+1 {
		return false
	}
	if a.to == own {
		// Pages that leave may lie anywhere; the card splits the move.
		return b.to == own
	}
	return b.to == a.to+place(a.n) && s.sameKind(a.to, b.to)
}

func (s *Set) sameKind(a, b place) bool { return s.window(a) == s.window(b) }

// window is the one that a place is in.
func (s *Set) window(at place) Kind {
	k, _ := s.plan.kind(at)
	return k
}

// home makes the card move a piece, as m says further. It reports whether all of
// it moved.
func (s *Set) home(p piece, m card.Move) bool {
	m.Addr, m.Size = uint64(p.page)<<pageShift, uint64(p.n)<<pageShift
	if p.to != own {
		f, off := s.at(p.to)
		m.To, m.Off = f.file, off
	}
	done, err := s.owner.Home(m)
	n := uint32(done >> pageShift)
	for i := range n {
		to := p.to
		if to != own {
			to += place(i)
		}
		s.settle(p.page+i, to)
	}
	s.stats.Moves.Add(1)
	s.stats.PagesMoved.Add(uint64(n))
	if p.to == own {
		s.trap.left += int(n)
	} else {
		s.trap.entered += int(n)
	}
	if err != nil {
		s.stayed(piece{p.page + n, p.n - n, p.to})
		s.refused = err
	}
	return n == p.n
}

// stayed counts pages that the card did not move, by the window that they were to come to, or
// to leave: those may lie anywhere.
func (s *Set) stayed(p piece) {
	for page := p.page; page < p.page+p.n; page++ {
		at := p.to
		if at == own {
			at = s.plan.home(page)
		}
		if at != own {
			s.stats.MovesRefused.Add(s.window(at), 1)
		}
	}
}

// settle notes where a page lives now.
func (s *Set) settle(page uint32, to place) {
	before := s.starts(page) + s.starts(page+1)
	s.count(s.plan.home(page), -1)
	s.plan.moved(page, to)
	s.count(to, 1)
	s.stats.Runs.Add(s.starts(page) + s.starts(page+1) - before)
}

func (s *Set) count(at place, n int64) {
	if at != own {
		s.stats.Homed[s.window(at)].Add(n)
	}
}

// at returns the file behind a place, and where the place is in it.
func (s *Set) at(p place) (*memory, uint64) {
	k, page := s.plan.kind(p)
	off := uint64(page) << pageShift
	switch k {
	case BAR3:
		return s.files[card.BAR3], off
	case BAR1, PollArea:
		return s.files[card.BAR1], off
	}
	return s.files[card.BAR0], praminBase + off
}

// bytes is a place's page as the guest sees it.
func (s *Set) bytes(p place) []byte {
	m, off := s.at(p)
	return m.mem[off : off+pageSize]
}

// clear makes places zero.
func (s *Set) clear(list []place) {
	slices.Sort(list)
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0]+place(n) && s.sameKind(list[0], list[n]) {
			n++
		}
		m, off := s.at(list[0])
		m.punch(off, uint64(n)<<pageShift)
		list = list[n:]
	}
}
