package sched

import "time"

// capPeriods is how many credit periods' worth of its cap a node may save.
const capPeriods = 2

// rest is a node that has used up its cap.
type rest struct {
	node   int32
	engine int32
	end    time.Duration
}

func (s *Scheduler) fullCap(n int32) time.Duration {
	return capPeriods * s.Config.Credit.Period * time.Duration(s.Nodes[n].Config.Cap) / FullCap
}

// spend takes time from a node's cap, and lets it rest when nothing is left.
func (s *Scheduler) spend(n int32, e int, busy time.Duration) {
	limit := time.Duration(s.Nodes[n].Config.Cap)
	if limit == 0 {
		return
	}
	l := &s.Nodes[n].Lanes[e]
	idle := min(s.Now-l.Filled, time.Hour) // longer ones would overflow, and it is full
	l.Tokens = min(l.Tokens+idle*limit/FullCap, s.fullCap(n)) - busy
	l.Filled = s.Now
	if l.Tokens > 0 {
		return
	}
	l.RestEnd = s.Now + (-l.Tokens*FullCap)/limit + 1
	if l.Rests {
		s.removeRest(n, e)
	}
	l.Rests = true
	s.addRest(n, e, l.RestEnd)
}

func (s *Scheduler) addRest(n int32, e int, end time.Duration) {
	s.rests = append(s.rests, rest{n, int32(e), end})
	s.fixRest(len(s.rests) - 1)
}

// removeRest takes a node out of the heap of those that rest.
func (s *Scheduler) removeRest(n int32, e int) {
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
	sift(list, at, func(a, b rest) bool { return a.end < b.end }, func(at int, r rest) {
		list[at] = r
		s.sides[r.node].slots[r.engine].rest = int32(at)
	})
}

// wakeRested resumes nodes whose cap has tokens again.
func (s *Scheduler) wakeRested() {
	for len(s.rests) > 0 && s.rests[0].end <= s.Now {
		n, e := s.rests[0].node, int(s.rests[0].engine)
		s.removeRest(n, e)
		s.Nodes[n].Lanes[e].Rests = false
		s.settle(n, e)
	}
}
