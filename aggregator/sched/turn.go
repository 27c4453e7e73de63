package sched

import "time"

// A request that is on the card has its turn until it ends, with two exceptions. One that waited
// for a semaphore needs a turn when the semaphore is released, like one that is submitted. And one
// that has had an engine for long loses its turn when others have a better claim. The caller
// pauses a channel whose requests have no turn. Their next turn resumes it.

// Hold is whether the requests that a channel has on the card have a turn.
type Hold uint8

// The values of Hold.
const (
	Granted  Hold = iota // they have
	Released             // they have none yet, since a semaphore was released
	Pausing              // the caller pauses the channel; an engine may still work for it
	Paused               // they wait for a turn, and no engine works for them
)

// rank orders siblings of the same priority: the lowest class goes first, and in it the lowest key.
type rank struct {
	class int
	key   int64
}

func (r rank) before(o rank) bool { return r.class < o.class || r.class == o.class && r.key < o.key }

// order is the rank of a node with work among its siblings.
type order func(s *core, n int32, e int) rank

// byTurn serves first who had no turn for longest. Channels of one group always take turns.
func byTurn(s *core, n int32, e int) rank { return rank{key: s.Nodes[n].Lanes[e].Turn} }

// first is the ready child of p that is first by an order, none if none is ready.
func (s *core) first(p int32, e int, by order) int32 { return s.firstBut(none, p, e, by) }

// firstBut is first without one of the children.
func (s *core) firstBut(but, p int32, e int, by order) int32 {
	if s.isGroup(p) {
		by = byTurn
	}
	first, best, top := none, rank{}, 0
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		priority := s.Nodes[c].Config.Priority
		if c == but || s.Nodes[c].Lanes[e].Able == 0 || priority < top {
			continue
		}
		r := by(s, c, e)
		goes := first == none || priority > top || r.before(best) || r == best && c < first
		if goes && s.ready(c, e) { // last, because it looks below
			first, best, top = c, r, priority
		}
	}
	return first
}

// descend returns the channel at or below a node that is first by an order, none if none is ready.
func (s *core) descend(n int32, e int, by order) int32 {
	for n != none && s.Nodes[n].Kind != Channel {
		n = s.first(n, e, by)
	}
	return n
}

// ready reports whether a node could have a turn.
func (s *core) ready(n int32, e int) bool {
	node := &s.Nodes[n]
	l := &node.Lanes[e]
	switch {
	case l.Able == 0 || l.Held || node.Block != 0 || s.rests(n, e):
		return false
	case node.Kind == Channel && node.Chan.Hold != Granted:
		return node.Chan.Hold != Pausing && l.Inflight > 0
	case node.Kind == Channel:
		return l.Waiting > 0 && l.Inflight < s.window
	}
	return s.readyBelow(n, e)
}

// readyBelow reports whether a child of a node could have a turn.
func (s *core) readyBelow(n int32, e int) bool {
	for c := s.Nodes[n].First; c != none; c = s.Nodes[c].Next {
		if s.ready(c, e) {
			return true
		}
	}
	return false
}

// give gives a channel a turn with at most so many entries, and sends it and the nodes above it, up to
// the node from, to the end of their rounds. It has the results of policy.Next.
func (s *core) give(c, from int32, e, most int) (int32, int) {
	if c == none {
		return none, 0
	}
	for m := c; m != from; m = s.Nodes[m].Parent {
		s.Turn++
		s.Nodes[m].Lanes[e].Turn = s.Turn
		if s.Nodes[m].Parent == root {
			s.Engines[e].Last = s.id(m)
		}
	}
	if s.Nodes[c].Chan.Hold != Granted {
		return c, 0
	}
	return c, most
}

// forever is a slice that does not end.
const forever = never / 2

// overstays finds the first channel whose slice on an engine is over and that does not keep its turn: at a
// node above it, it yields to a sibling.
func (s *core) overstays(e int, slice time.Duration, yields func(m, p int32, e int) bool) int32 {
	left := s.busy(e)
	for n := 0; left > 0 && n < len(s.Nodes); n++ {
		c, ch := int32(n), &s.Nodes[n].Chan
		if !s.keepsBusy(c, e) {
			continue
		}
		left -= s.Nodes[n].Lanes[e].Inflight
		if ch.Hold == Pausing || s.Nodes[c].Block&Dying != 0 {
			continue
		}
		for m := c; m != root && s.Now >= ch.HeadFrom+slice; m = s.Nodes[m].Parent {
			if s.rests(m, e) || s.Nodes[m].Lanes[e].Held || yields(m, s.Nodes[m].Parent, e) {
				return c
			}
		}
		s.Engines[e].Wake = min(s.Engines[e].Wake, s.nextCharge(c, e, slice))
	}
	return none
}

// nextCharge is when the caller has to charge a channel that keeps its turn on an engine, because its
// turn or a cap may be over then: never if there is no other that could have the engine, and no cap.
func (s *core) nextCharge(c int32, e int, slice time.Duration) time.Duration {
	at := never
	if s.Nodes[root].Lanes[e].Able > 1 {
		if at = s.Nodes[c].Chan.HeadFrom + slice; at <= s.Now {
			at = s.Now + slice
		}
	}
	for m := c; m != root; m = s.Nodes[m].Parent {
		if s.Nodes[m].Config.Cap != 0 && !s.rests(m, e) {
			at = min(at, s.Now+max(s.Nodes[m].Lanes[e].Tokens, s.Config.Slice))
		}
	}
	return at
}
