package sched

// Besides the state the scheduler has heaps of the children that could have the next turn,
// so that a decision examines few of them. rebuild makes all of it from the state.

// side is the derived data of a node.
type side struct {
	slots  []slot      // by engine
	queues [][2][]rank // by engine: children that are ready
}

// slot is a node's position in the heaps and lists.
type slot struct {
	pos   int32 // in its queue, none if it is not ready
	queue uint8
	rest  int32 // in rests, none if it does not rest
	card  int32 // in loaded, while it has requests there
}

// rank is a node in a queue, with what orders it.
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

// rebuild makes all derived data from the state, and ranks all nodes again.
func (s *Scheduler) rebuild() {
	s.sides, s.rests = s.sides[:0], s.rests[:0]
	s.loaded, s.released = s.loaded[:0], s.released[:0]
	s.least = s.leastLimit()
	s.usePolicy()
	for range s.Nodes {
		s.sides = append(s.sides, newSide(len(s.Engines)))
	}
	for e := range s.Engines {
		s.loaded = append(s.loaded, nil)
		for i := range s.Nodes {
			node, n := &s.Nodes[i], int32(i)
			if node.Kind == Free {
				continue
			}
			l := &node.Lanes[e]
			if l.Rests {
				s.addRest(n, e, l.RestEnd)
			}
			if node.Kind != Channel {
				continue
			}
			if l.Inflight > 0 && s.counts(n) {
				s.load(n, e)
			}
			if e == 0 && node.Chan.Hold == Released {
				s.released = append(s.released, n)
			}
		}
	}
	for i := range s.Nodes {
		for e := range s.Engines {
			if s.Nodes[i].Kind == Channel {
				s.settle(int32(i), e)
			}
		}
	}
}

// settle ranks a node and its ancestors again if it could have a turn.
func (s *Scheduler) settle(n int32, e int) {
	for n != root && (s.rerank(n, e) || s.climbs) {
		n = s.Nodes[n].Parent
	}
}

// rerank moves a node to its position among its siblings. It reports whether the node became
// ready, or is ready no longer.
func (s *Scheduler) rerank(n int32, e int) bool {
	s.examined++
	was := s.sides[n].slots[e].pos != none
	if !s.ready(n, e) {
		s.unready(n, e)
		return was
	}
	s.insert(n, e, s.rules(s.Nodes[n].Parent).rank(n, e))
	return !was
}

// insert puts a ready node at its position.
func (s *Scheduler) insert(n int32, e int, st SortKey) {
	node, sl, q := &s.Nodes[n], &s.sides[n].slots[e], st.Queue
	p := node.Parent
	node.Lanes[e].Sort = st
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
	p, at := s.Nodes[n].Parent, sl.pos
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
	sift(list, int(at), rank.before, func(at int, r rank) {
		s.examined++
		list[at] = r
		s.sides[r.node].slots[e].pos = int32(at)
	})
}

// sift moves the item at a place of a heap to where it belongs. put stores an item at a place.
func sift[T any](heap []T, at int, before func(a, b T) bool, put func(at int, item T)) {
	item := heap[at]
	for at > 0 && before(item, heap[(at-1)/2]) {
		put(at, heap[(at-1)/2])
		at = (at - 1) / 2
	}
	for down := 2*at + 1; down < len(heap); down = 2*at + 1 {
		if down+1 < len(heap) && before(heap[down+1], heap[down]) {
			down++
		}
		if !before(heap[down], item) {
			break
		}
		put(at, heap[down])
		at = down
	}
	put(at, item)
}

// ready reports whether a node could have a turn.
func (s *Scheduler) ready(n int32, e int) bool {
	node := &s.Nodes[n]
	l := &node.Lanes[e]
	if node.Block != 0 || l.Rests || l.Held {
		return false
	}
	if node.Kind == Channel {
		switch ch := &node.Chan; {
		case ch.Stalled || ch.Hold == Pausing:
			return false
		case ch.Hold != Granted:
			return l.Inflight > 0
		}
		return l.Waiting > 0 && l.Inflight < s.window
	}
	q := &s.sides[n].queues[e]
	return len(q[turns])+len(q[debts]) > 0
}

// resettle settles a node and everything below it.
func (s *Scheduler) resettle(n int32) {
	for m, stop := n, s.after(n); m != stop; m, _ = s.follow(m, 0) {
		for e := range s.Engines {
			if m != root {
				s.settle(m, e)
			}
		}
	}
}
