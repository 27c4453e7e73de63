package sched

// credit lets siblings with credit take turns, then serves the one with the least debt for its
// weight.
type credit struct{ plain }

func newCredit(s *core, _ *Config) policy { return credit{plain{s}} }

// inDebt is the class of those without credit.
const inDebt = 2

func byCredit(s *core, n int32, e int) rank {
	if l := &s.Nodes[n].Lanes[e]; l.Tag >= s.Nodes[s.Nodes[n].Parent].Lanes[e].Level {
		return rank{inDebt, l.Tag}
	}
	return byTurn(s, n, e)
}

func (s credit) Next(e int) (int32, int) {
	if !s.hasRoom(e) {
		return none, 0
	}
	return s.below(s.best(root, e, byCredit), e, byCredit)
}

// best is the child of p that has the next turn, after giving credit for the periods that have ended.
func (s credit) best(p int32, e int, by order) int32 {
	if !s.isGroup(p) {
		s.period(p, e)
	}
	return s.first(p, e, by)
}

// below gives a turn to a channel below a guest, which may be none.
func (s credit) below(c int32, e int, by order) (int32, int) {
	for c != none && s.Nodes[c].Kind != Channel {
		c = s.best(c, e, by)
	}
	if c == none || !s.goesAhead(c, e, s.before) {
		return none, 0
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		s.rise(m, e)
	}
	return s.give(c, root, e, 1)
}

// before reports whether one of two siblings had less.
func (s credit) before(a, b int32, e int) bool {
	return !s.isGroup(s.Nodes[a].Parent) && s.Nodes[a].Lanes[e].Tag < s.Nodes[b].Lanes[e].Tag
}

// rise lifts the level to a node that has the next turn although it is in debt, if all
// waiting nodes are. Otherwise those that are always there would gather debt for the time that
// others did not want, and a new node would have the engine for as long.
func (s credit) rise(n int32, e int) {
	p := s.Nodes[n].Parent
	l, tag := &s.Nodes[p].Lanes[e], s.Nodes[n].Lanes[e].Tag
	if s.isGroup(p) || tag <= l.Level {
		return
	}
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		if s.Nodes[c].Lanes[e].Tag < l.Level && s.ready(c, e) {
			return
		}
	}
	l.Level = tag
}

func (s credit) Timer(e int) int32 { return s.overstays(e, s.Config.Slice, s.yields) }

// yields compares debts as if m had had what it has on the card. Those with credit take turns.
func (s credit) yields(m, p int32, e int) bool {
	if s.isGroup(p) {
		return s.plain.yields(m, p, e)
	}
	yields, _ := s.compare(s.best(p, e, byCredit), m, e)
	return yields
}

// compare reports whether m yields to its ready sibling best, and whether that is because it is
// best's turn although both have credit.
func (s credit) compare(best, m int32, e int) (yields, inTurn bool) {
	if best == none || best == m {
		return false, false
	}
	if d := s.Nodes[best].Config.Priority - s.Nodes[m].Config.Priority; d != 0 {
		return d > 0, false
	}
	l, its := &s.Nodes[m].Lanes[e], s.Nodes[best].Lanes[e].Tag
	tag, level := l.Tag-over(l.Pending, s.weight(m)), s.Nodes[s.Nodes[m].Parent].Lanes[e].Level
	if tag < level {
		return its < level, its < level
	}
	return its < tag, false
}
