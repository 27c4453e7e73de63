package sched

import "time"

// capPeriods is how many credit periods' worth of its cap a node may save.
const capPeriods = 2

func (s *State) fullCap(n int32) time.Duration {
	return capPeriods * s.Config.Credit.Period * time.Duration(s.Nodes[n].Config.Cap) / FullCap
}

// spend takes time from a node's cap, and lets it rest when nothing is left.
func (s *State) spend(n int32, e int, busy time.Duration) {
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
	s.LastRest = max(s.LastRest, l.RestEnd)
}

// rests reports whether a node has used up its cap.
func (s *State) rests(n int32, e int) bool { return s.Nodes[n].Lanes[e].RestEnd > s.Now }

// restEnd is when the next node may have turns again that has used up its cap, never if none has.
func (s *State) restEnd() time.Duration {
	end := never
	if s.LastRest <= s.Now {
		return end
	}
	for n := range s.Nodes {
		for e := range s.Nodes[n].Lanes {
			if s.Nodes[n].Kind != Free && s.rests(int32(n), e) {
				end = min(end, s.Nodes[n].Lanes[e].RestEnd)
			}
		}
	}
	return end
}

// barred reports whether a node or one above it gets no turns.
func (s *State) barred(n int32, e int) bool {
	for ; n != root; n = s.Nodes[n].Parent {
		if s.Nodes[n].Block != 0 || s.rests(n, e) {
			return true
		}
	}
	return false
}
