package homes

// The part of BAR1 with the doorbells. If it is mapped, stores to it are seen by
// nobody: the owner looks at the pages that its channels have there.

// sizes is how many pages there are of each window that can be mapped.
func (c *Config) sizes() (n [Kinds]uint32) {
	for k, bytes := range [Kinds]uint64{BAR3: c.BAR3, BAR1: c.BAR1, PRAMIN: praminSize} {
		if c.Map&kindMaps[k] != 0 {
			n[k] = uint32(bytes >> pageShift)
		}
	}
	if c.Doorbells {
		n[PollArea] = uint32(min(c.Poll, c.BAR1) >> pageShift)
	}
	return n
}

// ofBAR1 is what of BAR1 can be mapped, in bytes.
func (c *Config) ofBAR1() (from, to uint64) {
	from, to = c.Poll, c.Poll
	if c.Doorbells {
		from = 0
	}
	if c.Map&MapBAR1 != 0 {
		to = c.BAR1
	}
	return from, min(to, c.BAR1)
}

// place is where a page of BAR1 or BAR3 is mapped, if it is.
func (s *Set) place(k Kind, page uint32) (at place, mapped bool) {
	switch poll := page < uint32(s.cfg.Poll>>pageShift); {
	case k == BAR1 && poll:
		return s.plan.base[PollArea] + place(page), s.cfg.Doorbells
	case k == BAR1 && s.cfg.Map&MapBAR1 == 0:
		return own, false
	}
	return s.plan.base[k] + place(page), true
}

// PollArea hears where the doorbells lie in BAR1, n bytes from off on. It reports
// whether a machine may have mapped some of them, in a place that is not made for it:
// only who looks at each channel's page then hears of them.
func (s *Set) PollArea(off, n uint64) (astray bool) {
	from, to := s.cfg.ofBAR1()
	astray = off != 0 && off < to && off+n > from
	if astray {
		s.stats.PollArea.Add(BAR1, 1)
	}
	return astray
}

// Doorbells tells whether the poll area is mapped.
func (s *Set) Doorbells() bool { return s.cfg.Doorbells }
