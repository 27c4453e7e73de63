package sched

import "fmt"

// Examined is the number of nodes examined so far.
func (s *Scheduler) Examined() uint64 { return s.examined }

// Level is that of the card's children on an engine.
func (s *Scheduler) Level(engine int) int64 { return s.Nodes[root].Lanes[engine].Level }

// Twin compares incrementally updated data with a full computation: which nodes are ready, the
// position of each, which is first, and debts.
func (s *Scheduler) Twin() error {
	for e := range s.Engines {
		groups := 0
		for i := range s.Nodes {
			n := int32(i)
			node := &s.Nodes[n]
			if node.Kind == Free {
				if s.sides[n].slots[e].pos != none {
					return fmt.Errorf("node %d is removed and in a queue", n)
				}
				continue
			}
			if node.Kind == Inner {
				if err := s.sumTwin(n, e); err != nil {
					return err
				}
				if n != root && s.isGroup(n) && node.Lanes[e].Able > 0 {
					groups++
				}
			}
			if err := s.queueTwin(n, e); err != nil {
				return err
			}
		}
		if err := s.loadTwin(e); err != nil {
			return err
		}
		if counted := s.Engines[e].Groups; groups != counted {
			return fmt.Errorf("engine %d: %d groups have work, kept %d", e, groups, counted)
		}
	}
	return nil
}

// loadTwin finds all nodes with requests that keep an engine busy.
func (s *Scheduler) loadTwin(e int) error {
	count, off := 0, 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Kind != Channel || n.Lanes[e].Inflight == 0 {
			continue
		}
		if !s.counts(int32(i)) {
			off += n.Lanes[e].Inflight
			if n.Lanes[e].Pending != 0 {
				return fmt.Errorf("node %d, engine %d: %v are expected of requests without a turn", i, e, n.Lanes[e].Pending)
			}
			continue
		}
		count++
		if at := s.sides[i].slots[e].card; int(at) >= len(s.loaded[e]) || s.loaded[e][at] != int32(i) {
			return fmt.Errorf("node %d, engine %d: has requests there and is not among %v", i, e, s.loaded[e])
		}
	}
	if count != len(s.loaded[e]) || off != s.Engines[e].Off {
		return fmt.Errorf("engine %d: %d channels have work, kept %d; %d entries have no turn, kept %d", e, count, len(s.loaded[e]), off, s.Engines[e].Off)
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
		if s.Nodes[c].Kind == Channel {
			l.Able = 0
			if s.able(c, e) {
				l.Able = 1
			}
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

// queueTwin examines all nodes that take turns below n.
func (s *Scheduler) queueTwin(n int32, e int) error {
	var want [2]int
	var first [2]rank
	for c := s.Nodes[n].First; c != none; c = s.Nodes[c].Next {
		at := s.sides[c].slots[e]
		if ready := s.ready(c, e); ready != (at.pos != none) {
			return fmt.Errorf("node %d, engine %d: ready is %v, it stands at %d", c, e, ready, at.pos)
		}
		if at.pos == none {
			continue
		}
		queued := s.sides[n].queues[e][at.queue][at.pos]
		st := s.rules(n).rank(c, e)
		if st.Queue == turns && at.queue == debts && queued.key < s.Nodes[n].Lanes[e].Level {
			st.Queue, st.Key = debts, queued.key // it is moved when it is examined next
		}
		st.Class = queued.class // recomputed each period
		r := rank{c, int8(s.Nodes[c].Config.Priority), st.Class, st.Key}
		if q := st.Queue; q != at.queue || queued != r || s.Nodes[c].Lanes[e].Sort != st {
			return fmt.Errorf("node %d, engine %d: should stand in %d as %+v, stands in %d as %+v, and in the state as %+v",
				c, e, q, r, at.queue, queued, s.Nodes[c].Lanes[e].Sort)
		}
		q := st.Queue
		if want[q]++; want[q] == 1 || queued.before(first[q]) {
			first[q] = queued
		}
	}
	for q, list := range s.sides[n].queues[e] {
		if len(list) != want[q] {
			return fmt.Errorf("node %d, engine %d: queue %d has %d, should have %d", n, e, q, len(list), want[q])
		}
		if len(list) > 0 && list[0] != first[q] {
			return fmt.Errorf("node %d, engine %d: %+v is first in queue %d, should be %+v", n, e, list[0], q, first[q])
		}
	}
	return nil
}
