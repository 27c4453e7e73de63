package homes

import "github.com/umbra-gpu/umbra/aggregator/card"

// The pieces in which pages lie in windows. Each costs the process two mappings at most: its
// own, and one of what lies behind it. Pages that enter make runs, and so do pages that
// leave the middle of one.

// fits reports whether there may be so many more runs.
func (s *Set) fits(more int64) bool {
	return more <= 0 || s.stats.Runs.Load()+more <= int64(s.cfg.Runs)
}

// starts is 1 if a run of pages that lie together begins with page.
func (s *Set) starts(page uint32) int64 {
	at := s.plan.home(page)
	if at == own {
		return 0
	}
	if page > 0 {
		if before := s.plan.home(page - 1); before != own && before+1 == at && s.sameKind(before, at) {
			return 0
		}
	}
	return 1
}

// leaving is how many runs there are more when n pages from page on leave. It is 1 if
// they lie inside one, and never more.
func (s *Set) leaving(page, n uint32) (runs int64) {
	for p := page; p <= page+n; p++ {
		runs -= s.starts(p)
	}
	if s.plan.home(page+n) != own {
		runs++
	}
	return runs
}

// leave sends pages back to the card from places that show them no more. No more than n
// pages leave. One that would leave more runs than there may be takes the shorter rest of its
// run along: these are returned. Those that have to wait are planned again.
func (s *Set) leave(changes []change, n int) (along []uint32) {
	var list, split []piece
	for _, c := range changes {
		if c.from != own && c.to != c.from && !s.plan.showing(c.page, c.from) {
			list = append(list, piece{c.page, 1, own})
		}
	}
	before := s.trap.left
	for _, p := range s.join(list) {
		if !s.fits(s.leaving(p.page, p.n)) {
			split = append(split, p) // others may make room
			continue
		}
		s.home(p, card.Move{})
	}
	for _, p := range split {
		along = s.leaveInside(p, n-(s.trap.left-before), along)
	}
	return along
}

// leaveInside sends a piece from the middle of a run. Its rest goes from its end on, so that
// no step makes a run.
func (s *Set) leaveInside(p piece, n int, along []uint32) []uint32 {
	if !s.fits(s.leaving(p.page, p.n)) {
		rest, whole := s.rest(p, uint32(max(n, 0)))
		along = append(along, s.takeAlong(rest)...)
		switch n -= int(rest.n); {
		case !whole:
			n = 0
		case !s.fits(s.leaving(p.page, p.n)): // the card did not move the rest
			s.stayed(p)
			return along
		}
	}
	if n < int(p.n) {
		for page := p.page; page < p.page+p.n; page++ {
			s.plan.touch(page, s.plan.state(page))
		}
		return along
	}
	s.home(p, card.Move{})
	return along
}

// rest returns the shorter part of the run around p that is left without p: n pages of it at
// most, those at the run's end.
func (s *Set) rest(p piece, n uint32) (rest piece, whole bool) {
	first, behind := p.page, p.page+p.n
	for {
		if first--; s.starts(first) == 1 {
			size := p.page - first
			return piece{first, min(size, n), own}, size <= n
		}
		if behind++; s.plan.home(behind) == own || s.starts(behind) == 1 {
			size := behind - (p.page + p.n)
			return piece{behind - min(size, n), min(size, n), own}, size <= n
		}
	}
}

// takeAlong sends pages home that their places go on showing: what the guest stores
// there is lost from now on.
func (s *Set) takeAlong(p piece) (pages []uint32) {
	if p.n == 0 {
		return nil
	}
	var refused [Kinds]uint64
	for page := p.page; page < p.page+p.n; page++ {
		pages = append(pages, page)
		if at := s.plan.home(page); s.plan.showing(page, at) {
			refused[s.window(at)]++
		}
	}
	s.agree(nil, pages)
	s.home(p, card.Move{})
	for k, n := range refused {
		s.stats.RunsRefused.Add(Kind(k), n)
	}
	return pages
}
