package sched

import "fmt"

// Level is that of the card's children on an engine.
func (s *Scheduler) Level(engine int) int64 { return s.Nodes[root].Lanes[engine].Level }

// Twin compares sums that are kept with a full computation.
func (s *Scheduler) Twin() error {
	for n := range s.Nodes[:min(int(s.Released), len(s.Nodes))] {
		if ch := &s.Nodes[n].Chan; s.Nodes[n].Kind == Channel && ch.Hold == Released && !ch.Stalled {
			return fmt.Errorf("node %d was released, and %d is said to be the first", n, s.Released)
		}
	}
	for n := range s.Nodes {
		if node := &s.Nodes[n]; node.Kind != Free && node.Block&Dying != 0 && !s.onCard(int32(n)) {
			return fmt.Errorf("node %d is removed and has nothing on the card, and is not freed", n)
		}
	}
	for e := range s.Engines {
		groups, off := 0, 0
		for i := range s.Nodes {
			n := int32(i)
			l := &s.Nodes[n].Lanes[e]
			switch s.Nodes[n].Kind {
			case Inner:
				if err := s.sumTwin(n, e); err != nil {
					return err
				}
				if n != root && s.isGroup(n) && l.Able > 0 {
					groups++
				}
			case Channel:
				if !s.counts(n) {
					off += l.Inflight
				} else if l.Inflight > 0 {
					continue
				}
				if l.Pending != 0 {
					return fmt.Errorf("node %d, engine %d: %v are expected of requests without a turn", i, e, l.Pending)
				}
			}
		}
		if w := &s.Engines[e].Watch; w.State != Quiet && s.find(w.Channel) == none {
			return fmt.Errorf("engine %d: the watchdog waits for a channel that is gone", e)
		}
		if kept := &s.Engines[e]; groups != kept.Groups || off != kept.Off {
			return fmt.Errorf("engine %d: %d groups have work, kept %d; %d entries have no turn, kept %d", e, groups, kept.Groups, off, kept.Off)
		}
	}
	return nil
}

// sumTwin adds up a node's children.
func (s *Scheduler) sumTwin(n int32, e int) error {
	var sum Lane
	for c := s.Nodes[n].First; c != none; c = s.Nodes[c].Next {
		l := &s.Nodes[c].Lanes[e]
		sum.Waiting += l.Waiting
		sum.Inflight += l.Inflight
		if able := l.Waiting+l.Inflight > 0 && !s.Nodes[c].Chan.Stalled; s.Nodes[c].Kind == Channel && able != (l.Able == 1) {
			return fmt.Errorf("node %d, engine %d: able is %v, kept %d", c, e, able, l.Able)
		}
		sum.Able += l.Able
		sum.Pending += l.Pending
		if l.Able > 0 {
			sum.Live += int64(s.Nodes[c].Config.Weight)
			sum.Rivals++
		}
		if l.Idle == s.Nodes[n].Lanes[e].Period {
			sum.Left += int64(s.Nodes[c].Config.Weight)
		}
	}
	l := &s.Nodes[n].Lanes[e]
	if sum.Waiting != l.Waiting || sum.Inflight != l.Inflight || sum.Able != l.Able || sum.Live != l.Live || sum.Rivals != l.Rivals || sum.Pending != l.Pending || sum.Left != l.Left {
		return fmt.Errorf("node %d, engine %d: children have %+v, kept %+v", n, e, sum, *l)
	}
	return nil
}
