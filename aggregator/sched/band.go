package sched

import "time"

// Band is credit with two additions. Among nodes with credit, those that used more than their
// share in the window go last. And before the card is given to such a node, it is kept for a
// moment for the node that had the last turn and used less, because that node may soon have work
// again.

type band struct{ credit }

func (s band) rank(n int32, e int) rank {
	r := s.credit.rank(n, e)
	if r.class != inDebt && s.overShare(n, e) {
		r.class = 1
	}
	return r
}

func (s band) yields(m, p int32, e int) bool {
	best := s.credit.next(p, e)
	yields, inTurn := s.compare(best, m, e)
	return yields && (!inTurn || s.overShare(m, e) || !s.overShare(best, e))
}

func (s band) serve(n int32, e int, busy, d time.Duration) {
	l := &s.Nodes[n].Lanes[e]
	if now := s.windowNow(); l.UsedIn != now {
		l.UsedIn, l.Used = now, 0
	}
	l.Used += busy
	s.credit.serve(n, e, busy, d)
}

// windowNow numbers the windows in which use is measured.
func (s band) windowNow() int64 { return int64(s.Now / s.Config.Band.Window) }

// used is what a node used in this window; of the card, how long the window is so far.
func (s band) used(n int32, e int) time.Duration {
	if n == root {
		return s.Now % s.Config.Band.Window
	}
	if l := &s.Nodes[n].Lanes[e]; l.UsedIn == s.windowNow() {
		return l.Used
	}
	return 0
}

// overShare reports whether a node used more than its share in this window.
func (s band) overShare(n int32, e int) bool {
	p := s.Nodes[n].Parent
	up := &s.Nodes[p].Lanes[e]
	return float64(s.used(n, e))*float64(up.Live+up.Left) > float64(s.used(p, e))*float64(s.weight(n))
}

// keepPart bounds the time for which the card is kept: one part in so many.
const keepPart = 20

func (s band) next(p int32, e int) int32 {
	c := s.credit.next(p, e)
	if p != root { // below the card waiting is useless: other nodes can continue
		return c
	}
	k := &s.Nodes[p].Lanes[e].Keep
	if c == none || !s.worthKeeping(c, e) {
		s.endKeeping(k)
		k.Done = k.Done && c == none
		return c
	}
	if k.Until == 0 && !k.Done && s.mayKeep(k) {
		k.Until, k.From, k.Done = s.Now+s.Config.Band.Grace, s.Now, true
	}
	if s.Now < k.Until {
		s.Engines[e].Wake = k.Until
		return none
	}
	s.endKeeping(k)
	k.Done = false
	return c
}

// worthKeeping reports whether a node had the last turn and used less than c, which is over
// its share and has a request that is longer than the wait.
func (s band) worthKeeping(c int32, e int) bool {
	last := s.Nodes[root].Lanes[e].Last
	if last == none || last == c || s.busy(e) > 0 || !s.overShare(c, e) || s.overShare(last, e) || s.used(c, e) <= s.used(last, e) {
		return false
	}
	l := &s.Nodes[last].Lanes[e]
	return s.Nodes[last].Block == 0 && l.Waiting == 0 && l.Able == 0 && !s.rests(last, e) && s.nextMean(c, e) > s.Config.Band.Grace
}

// nextMean is how long requests are of the channel that is next at or below a ready node.
func (s band) nextMean(n int32, e int) time.Duration {
	for s.Nodes[n].Kind != Channel {
		n = s.first(n, e)
	}
	return s.Nodes[n].Lanes[e].Mean
}

// mayKeep reports whether the card may be kept once more.
func (s band) mayKeep(k *KeepState) bool {
	grace := s.Config.Band.Grace
	k.Budget = min(k.Budget+(s.Now-k.At)/keepPart, 4*grace)
	k.At = s.Now
	return k.Budget >= grace
}

// endKeeping takes a wait off the budget.
func (s band) endKeeping(k *KeepState) {
	if k.Until != 0 {
		k.Budget -= s.Now - k.From
		k.Until = 0
	}
}
