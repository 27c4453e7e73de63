package sched

import "time"

// What follows from the state: who could have the next turn, in heaps, so that
// one decision looks at few of many. [Scheduler.rebuild] makes all of it anew.

// side is what is kept beside a node.
type side struct {
	slots  []slot      // by engine
	queues [][2][]rank // by engine: children that are ready
}

// slot is where a node stands.
type slot struct {
	pos   int32 // in its queue, none if it is not ready
	queue uint8
	rest  int32 // in rests, none if it does not rest
	card  int32 // in loaded, while it has requests there
}

// rank is a node in a queue, with what it is ordered by.
type rank struct {
	node  int32
	prio  int8 // higher goes first
	class uint8
	key   int64
}

// The queues of a parent.
const (
	turns = 0 // by turn
	debts = 1 // by tag
)

type rest struct {
	node   int32
	engine int32
	end    time.Duration
}

func newSide(engines int) side {
	sd := side{slots: make([]slot, engines), queues: make([][2][]rank, engines)}
	for e := range sd.slots {
		sd.slots[e] = slot{pos: none, rest: none}
	}
	return sd
}

func (a rank) before(b rank) bool {
	switch {
	case a.prio != b.prio:
		return a.prio > b.prio
	case a.class != b.class:
		return a.class < b.class
	case a.key != b.key:
		return a.key < b.key
	}
	return a.node < b.node
}

// rebuild makes what follows from the state, and ranks everybody anew.
func (s *Scheduler) rebuild() {
	s.sides = s.sides[:0]
	s.rests = s.rests[:0]
	s.names = make(map[nameKey]int32)
	s.least = s.leastLimit()
	s.kinds = [policies]int{}
	s.kinds[s.Config.Policy]++
	for n := range s.Nodes {
		if s.Nodes[n].Kind != Gone {
			s.kinds[s.Nodes[n].Config.Policy]++
		}
		s.sides = append(s.sides, newSide(len(s.Engines)))
		if node := &s.Nodes[n]; node.Kind != Gone && node.Config.Name != "" && node.Block&Dying == 0 {
			s.names[nameKey{node.Parent, node.Config.Name}] = int32(n)
		}
	}
	s.rebuildLoaded()
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			if l := &s.Nodes[n].Lanes[e]; s.Nodes[n].Kind != Gone && l.Rests {
				s.addRest(int32(n), e, l.RestEnd)
			}
		}
	}
	for n := range s.Nodes {
		if s.Nodes[n].Kind == Channel {
			for e := range s.Engines {
				s.settle(int32(n), e)
			}
		}
	}
}

// resume makes what follows from a state that was frozen, with everybody where they
// stood.
func (s *Scheduler) resume() {
	var stood []Stand
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			stood = append(stood, s.Nodes[n].Lanes[e].Stand)
		}
	}
	s.rebuild()
	at := 0
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			if st := stood[at]; s.sides[n].slots[e].pos == none {
				s.Nodes[n].Lanes[e].Stand = st
			} else {
				s.stand(int32(n), s.over(int32(n)), e, st)
			}
			at++
		}
	}
}

// settle sees whether a node could have a turn, and with it those above. With a
// FIFO anywhere, what is oldest below a node counts all the way up.
func (s *Scheduler) settle(n int32, e int) {
	for n != root {
		p := s.over(n)
		if !s.rerank(n, p, e) && s.kinds[FIFO] == 0 {
			return
		}
		n = p
	}
}

// rerank puts a node where it belongs among its siblings. It reports whether
// that may matter to those above.
func (s *Scheduler) rerank(n, p int32, e int) bool {
	s.looks++
	sl := &s.sides[n].slots[e]
	if !s.ready(n, e) {
		was := sl.pos != none
		s.unready(n, e)
		return was
	}
	fresh := sl.pos == none
	s.stand(n, p, e, s.rank(n, p, e))
	return fresh
}

// stand puts a node that is ready into its place.
func (s *Scheduler) stand(n, p int32, e int, st Stand) {
	node, sl, q := &s.Nodes[n], &s.sides[n].slots[e], st.Queue
	node.Lanes[e].Stand = st
	r := rank{n, int8(node.Config.Priority), st.Class, st.Key}
	if sl.pos != none && sl.queue == q {
		if list := s.sides[p].queues[e][q]; list[sl.pos] != r {
			list[sl.pos] = r
			s.fix(p, e, q, sl.pos)
		}
		return
	}
	s.unready(n, e)
	list := append(s.sides[p].queues[e][q], r)
	s.sides[p].queues[e][q] = list
	sl.pos, sl.queue = int32(len(list)-1), q
	s.fix(p, e, q, sl.pos)
}

// unready takes a node out of its queue.
func (s *Scheduler) unready(n int32, e int) {
	sl := &s.sides[n].slots[e]
	if sl.pos == none {
		return
	}
	p, at := s.over(n), sl.pos
	list := s.sides[p].queues[e][sl.queue]
	last := int32(len(list) - 1)
	list[at] = list[last]
	s.sides[list[at].node].slots[e].pos = at
	s.sides[p].queues[e][sl.queue] = list[:last]
	sl.pos = none
	if at < last {
		s.fix(p, e, sl.queue, at)
	}
}

// fix restores the heap around a place.
func (s *Scheduler) fix(p int32, e int, q uint8, at int32) {
	list := s.sides[p].queues[e][q]
	r := list[at]
	for at > 0 {
		s.looks++
		up := (at - 1) / 2
		if !r.before(list[up]) {
			break
		}
		list[at] = list[up]
		s.sides[list[at].node].slots[e].pos = at
		at = up
	}
	list[at] = r
	s.sink(p, e, q, at)
}

// sink moves what stands at a place down to where it belongs.
func (s *Scheduler) sink(p int32, e int, q uint8, at int32) {
	list := s.sides[p].queues[e][q]
	r := list[at]
	for {
		s.looks++
		down := 2*at + 1
		if int(down) >= len(list) {
			break
		}
		if int(down+1) < len(list) && list[down+1].before(list[down]) {
			down++
		}
		if !list[down].before(r) {
			break
		}
		list[at] = list[down]
		s.sides[list[at].node].slots[e].pos = at
		at = down
	}
	list[at] = r
	s.sides[r.node].slots[e].pos = at
}

// ready tells whether a node could have a turn.
func (s *Scheduler) ready(n int32, e int) bool {
	node := &s.Nodes[n]
	l := &node.Lanes[e]
	if node.Block != 0 || l.Rests || l.Held {
		return false
	}
	if node.Kind == Channel {
		return l.Waiting > 0 && !node.Chan.Stalled && l.Inflight < s.window()
	}
	if s.Config.Hierarchy != Tree && s.barred(node.Parent, e) { // those above do not compete
		return false
	}
	q := &s.sides[n].queues[e]
	return len(q[turns])+len(q[debts]) > 0
}

// window is how many requests of one channel may be on the card.
func (s *Scheduler) window() int {
	if w := s.Config.DFQ.Window; s.Config.Policy == DFQ && w > 0 {
		return w
	}
	return int(^uint(0) >> 1)
}

// rank is where a ready node stands among its siblings.
func (s *Scheduler) rank(n, p int32, e int) Stand {
	l := &s.Nodes[n].Lanes[e]
	st := Stand{Queue: turns, Key: l.Turn}
	switch s.discipline(p) {
	case FIFO:
		st.Key = s.oldest(n, e)
	case Credit, Band:
		if l.Tag >= s.Nodes[p].Lanes[e].Level {
			st.Queue, st.Key = debts, l.Tag
		} else if s.discipline(p) == Band && s.overShare(n, p, e) {
			st.Class = 1
		}
	}
	return st
}

// oldest is when, in the order of submissions, the oldest came that n waits with.
func (s *Scheduler) oldest(n int32, e int) int64 {
	if s.Nodes[n].Kind == Channel {
		if b := s.Nodes[n].Chan.Batches; len(b) > 0 {
			return b[0].Seq
		}
		return 0
	}
	q := s.sides[n].queues[e]
	next := q[turns]
	if len(next) == 0 {
		next = q[debts]
	}
	if s.discipline(n) == FIFO {
		return next[0].key
	}
	// Children that take turns otherwise: the one that is next stands for all.
	return s.oldest(next[0].node, e)
}

// tellOldest tells those above p that another of its children may stand for all of them.
func (s *Scheduler) tellOldest(p int32, e int) {
	if s.kinds[FIFO] > 0 {
		s.settle(p, e)
	}
}

// resettle looks anew at a node and everything below it, after a change that
// bars or frees many.
func (s *Scheduler) resettle(n int32) {
	for m, stop := n, s.after(n); m != stop; m, _ = s.follow(m, 0) {
		if s.competes(m) {
			for e := range s.Engines {
				s.settle(m, e)
			}
		}
	}
}

// --- caps

// capPeriods is how many credit periods' worth of its cap a node may save.
const capPeriods = 2

func (s *Scheduler) fullCap(n int32) time.Duration {
	return capPeriods * s.Config.Credit.Period * time.Duration(s.Nodes[n].Config.Cap) / FullCap
}

// spend takes time from a node's cap, and lets it rest when nothing is left.
func (s *Scheduler) spend(n int32, e int, busy time.Duration) {
	node := &s.Nodes[n]
	limit := time.Duration(node.Config.Cap)
	if limit == 0 {
		return
	}
	l := &node.Lanes[e]
	// Idle for long is as good as idle until it is full.
	gone := min(s.Now-l.Filled, time.Hour)
	l.Tokens = min(l.Tokens+gone*limit/FullCap, s.fullCap(n)) - busy
	l.Filled = s.Now
	if l.Tokens > 0 {
		return
	}
	l.RestEnd = s.Now + (-l.Tokens*FullCap)/limit + 1
	if l.Rests {
		s.unrest(n, e)
	}
	l.Rests = true
	s.addRest(n, e, l.RestEnd)
}

func (s *Scheduler) addRest(n int32, e int, end time.Duration) {
	s.rests = append(s.rests, rest{n, int32(e), end})
	s.fixRest(len(s.rests) - 1)
}

// unrest takes a node out of the heap of those that rest.
func (s *Scheduler) unrest(n int32, e int) {
	at := int(s.sides[n].slots[e].rest)
	if at < 0 {
		return
	}
	last := len(s.rests) - 1
	s.rests[at] = s.rests[last]
	s.rests = s.rests[:last]
	s.sides[n].slots[e].rest = none
	if at < last {
		s.fixRest(at)
	}
}

func (s *Scheduler) fixRest(at int) {
	list := s.rests
	r := list[at]
	put := func(at int, r rest) {
		list[at] = r
		s.sides[r.node].slots[r.engine].rest = int32(at)
	}
	for at > 0 && r.end < list[(at-1)/2].end {
		put(at, list[(at-1)/2])
		at = (at - 1) / 2
	}
	for {
		down := 2*at + 1
		if down >= len(list) {
			break
		}
		if down+1 < len(list) && list[down+1].end < list[down].end {
			down++
		}
		if list[down].end >= r.end {
			break
		}
		put(at, list[down])
		at = down
	}
	put(at, r)
}

// wakeRested lets those go on whose cap has something again.
func (s *Scheduler) wakeRested() {
	for len(s.rests) > 0 && s.rests[0].end <= s.Now {
		r := s.rests[0]
		s.unrest(r.node, int(r.engine))
		s.Nodes[r.node].Lanes[r.engine].Rests = false
		s.settleBelow(r.node, int(r.engine))
	}
}

// settleBelow settles whom a node's rest on one engine concerns.
func (s *Scheduler) settleBelow(n int32, e int) {
	if s.competes(n) {
		s.settle(n, e)
		return
	}
	for m, stop := n, s.after(n); m != stop; m, _ = s.follow(m, 0) {
		if s.competes(m) {
			s.settle(m, e)
		}
	}
}
