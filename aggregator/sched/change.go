package sched

import "time"

// Configure changes how the card is shared, while it is. Nothing that waits or
// is on the card is touched; what is there is ranked anew.
func (s *Scheduler) Configure(now time.Duration, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	s.advance(now)
	var debts [][]time.Duration
	if c.Hierarchy != s.Config.Hierarchy {
		debts = s.allDebts()
	}
	old := s.Config
	for e := range s.Engines {
		s.closeBooks(e)
	}
	s.Config = c
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			l := &s.Nodes[n].Lanes[e]
			if c.Credit.Period != old.Credit.Period { // periods count anew
				l.Period, l.Idle, l.Left = s.periodNow(), -1, 0
			}
			if c.Band.Window != old.Band.Window {
				l.UsedIn, l.Used = -1, 0
			}
			l.Window, l.Round = -1, 0
			if c.Policy != old.Policy {
				l.Held, l.Holder, l.Grace, l.Chances, l.IdleAt = false, none, 0, 0, never
			}
		}
	}
	if c.Policy != old.Policy {
		for e := range s.Engines {
			d := &s.Engines[e].DFQ
			*d = DFQState{Group: none, Since: s.Now, IdleAt: never, Order: d.Order[:0], Spent: d.Spent}
		}
	}
	if debts != nil {
		s.owe(debts)
	}
	if c.Policy == DFQ && old.Policy != DFQ {
		s.lower()
	}
	s.rebuild()
	s.least = s.leastLimit()
	return nil
}

// closeBooks brings what depends on the configuration up to date with the old one.
func (s *Scheduler) closeBooks(e int) {
	for n := range s.Nodes {
		if s.Nodes[n].Kind == Inner {
			s.period(int32(n), e)
		}
	}
}

// allDebts is what every node is ahead of its share.
func (s *Scheduler) allDebts() [][]time.Duration {
	out := make([][]time.Duration, len(s.Nodes))
	for n := range s.Nodes {
		for e := range s.Engines {
			d := time.Duration(0)
			if s.Nodes[n].Kind == Inner && int32(n) != root {
				d = s.debt(int32(n), e)
			}
			out[n] = append(out[n], d)
		}
	}
	return out
}

// owe gives nodes their debts in the tags of another hierarchy.
func (s *Scheduler) owe(debts [][]time.Duration) {
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner || int32(n) == root || !s.competes(int32(n)) {
			continue
		}
		for e := range s.Engines {
			w, shift := s.weight(int32(n), e)
			s.Nodes[n].Lanes[e].Tag = s.Nodes[s.over(int32(n))].Lanes[e].Level + over(debts[n][e], w, shift)
		}
	}
}

// lower puts each level to the least tag, so that credit is still worth
// something where nobody may be below the level.
func (s *Scheduler) lower() {
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Inner || int32(n) == root || !s.competes(int32(n)) {
			continue
		}
		for e := range s.Engines {
			if up := &s.Nodes[s.over(int32(n))].Lanes[e]; s.Nodes[n].Lanes[e].Able > 0 {
				up.Level = min(up.Level, s.Nodes[n].Lanes[e].Tag)
			}
		}
	}
}

// fall lowers the level of p's children if all with work have credit, to the one who
// has least, for all alike: the reverse of rise. What all have more is worth nothing,
// but as long as it lasts they take turns, whatever their weights.
func (s *Scheduler) fall(p int32, e int) {
	l := &s.Nodes[p].Lanes[e]
	most, some := int64(0), false
	for n := range s.Nodes {
		m := int32(n)
		if s.Nodes[n].Kind == Gone || !s.competes(m) || s.over(m) != p || s.Nodes[n].Lanes[e].Able == 0 {
			continue
		}
		if tag := s.Nodes[n].Lanes[e].Tag; !some || tag > most {
			most, some = tag, true
		}
	}
	if some {
		l.Level = min(l.Level, most)
	}
}

// Change changes what a node says of itself, while it has work.
func (s *Scheduler) Change(now time.Duration, id ID, c NodeConfig) error {
	s.advance(now)
	n := s.find(id)
	if n == none || n == root || s.Nodes[n].Block&Dying != 0 {
		return &Error{"node", nameOfID(id), "there is no such node"}
	}
	node := &s.Nodes[n]
	old := node.Config
	key := nameKey{node.Parent, old.Name}
	if old.Name != "" {
		delete(s.names, key)
	}
	if err := s.fit(node.Parent, &c); err != nil {
		if old.Name != "" {
			s.names[key] = n
		}
		return err
	}
	if c.Name != "" {
		s.names[nameKey{node.Parent, c.Name}] = n
	}
	more := int64(c.Weight - old.Weight)
	for e := range node.Lanes {
		s.period(node.Parent, e)
		s.fall(s.over(n), e)
		l, up := &node.Lanes[e], &s.Nodes[node.Parent].Lanes[e]
		debt := s.debt(n, e)
		switch {
		case l.Able > 0:
			up.Live += more
			if s.isGroup(n) {
				s.Engines[e].Flat += more
			}
		case l.Idle == up.Period:
			up.Left += more
		}
		node.Config.Weight = c.Weight
		if w, shift := s.weight(n, e); s.competes(n) { // the debt is a time, whatever the weight
			l.Tag = s.Nodes[s.over(n)].Lanes[e].Level + over(debt, w, shift)
		}
		node.Config.Weight = old.Weight
	}
	node.Config = c
	for e := range node.Lanes {
		if l := &node.Lanes[e]; c.Cap != old.Cap {
			s.unrest(n, e)
			l.Rests, l.Tokens, l.Filled = false, s.fullCap(n), s.Now
			s.enter(n, e) // what it could not use while it rested is not saved for it
		}
	}
	s.rebuild()
	s.least = s.leastLimit()
	return nil
}
