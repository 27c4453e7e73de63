package sched

import "time"

// Band is credit with two additions. Among nodes with credit, those that used more than their
// share in the window go last. And before the card is given to such a node, it is kept for a
// moment for the node that had the last turn and used less, because that node may soon have work
// again.

type band struct{ credit }

func newBand(s *core, old *Config) policy {
	for e := range s.Engines {
		if old.Policy != Band {
			s.Engines[e].Keep = KeepState{}
		}
		for n := range s.Nodes {
			if old.Policy != Band || old.Band.Window != s.Config.Band.Window {
				s.Nodes[n].Lanes[e].Band = BandState{UsedIn: -1}
			}
		}
	}
	return band{credit{plain{s}}}
}

func byBand(s *core, n int32, e int) rank {
	r := byCredit(s, n, e)
	if r.class != inDebt && s.overShare(n, e) {
		r.class = 1
	}
	return r
}

func (s band) yields(m, p int32, e int) bool {
	if s.isGroup(p) {
		return s.plain.yields(m, p, e)
	}
	best := s.best(p, e, byBand)
	yields, inTurn := s.compare(best, m, e)
	return yields && (!inTurn || s.overShare(m, e) || !s.overShare(best, e))
}

func (s band) Timer(e int) int32 { return s.overstays(e, s.Config.Slice, s.yields) }

func (s band) Charge(c int32, e int, u Use) {
	for n := c; n != root; n = s.Nodes[n].Parent {
		l := &s.Nodes[n].Lanes[e].Band
		if now := s.windowNow(); l.UsedIn != now {
			*l = BandState{UsedIn: now}
		}
		l.Used += u.Busy
	}
	s.credit.Charge(c, e, u)
}

// windowNow numbers the windows in which use is measured.
func (s *core) windowNow() int64 { return int64(s.Now / s.Config.Band.Window) }

// recent is what a node used in this window; of the card, how long the window is so far.
func (s *core) recent(n int32, e int) time.Duration {
	if n == root {
		return s.Now % s.Config.Band.Window
	}
	if l := &s.Nodes[n].Lanes[e].Band; l.UsedIn == s.windowNow() {
		return l.Used
	}
	return 0
}

// overShare reports whether a node used more than its share in this window.
func (s *core) overShare(n int32, e int) bool {
	p := s.Nodes[n].Parent
	up := &s.Nodes[p].Lanes[e]
	return float64(s.recent(n, e))*float64(up.Live+up.Left) > float64(s.recent(p, e))*float64(s.weight(n))
}

// keepPart bounds the time for which the card is kept: one part in so many.
const keepPart = 20

func (s band) Next(e int) (int32, int) {
	if !s.hasRoom(e) {
		return none, 0
	}
	g, k := s.best(root, e, byBand), &s.Engines[e].Keep
	if g != none && s.worthKeeping(g, e) {
		if k.Until == 0 && !k.Done && s.mayKeep(k) {
			k.Until, k.From, k.Done = s.Now+s.Config.Band.Grace, s.Now, true
		}
		if s.Now < k.Until {
			s.Engines[e].Wake = k.Until
			return none, 0
		}
	}
	if k.Until != 0 {
		k.Budget -= s.Now - k.From
		k.Until = 0
	}
	k.Done = k.Done && g == none
	return s.below(g, e, byBand)
}

// worthKeeping reports whether a guest had the last turn and used less than g, which is over
// its share and has a request that is longer than the wait.
func (s band) worthKeeping(g int32, e int) bool {
	last := s.find(s.Engines[e].Last)
	if last == none || last == g || s.busy(e) > 0 || !s.overShare(g, e) || s.overShare(last, e) || s.recent(g, e) <= s.recent(last, e) {
		return false
	}
	l := &s.Nodes[last].Lanes[e]
	return s.Nodes[last].Block == 0 && l.Waiting == 0 && l.Able == 0 && !s.rests(last, e) &&
		s.Nodes[s.descend(g, e, byBand)].Lanes[e].Mean > s.Config.Band.Grace
}

// mayKeep reports whether the card may be kept once more.
func (s band) mayKeep(k *KeepState) bool {
	grace := s.Config.Band.Grace
	k.Budget = min(k.Budget+(s.Now-k.At)/keepPart, 4*grace)
	k.At = s.Now
	return k.Budget >= grace
}
