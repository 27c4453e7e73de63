package sched

import (
	"errors"
	"fmt"
	"time"
)

// Refusals of a node. They are counted, and no mistake of the caller.
var (
	ErrStorm = errors.New("the guest makes groups and channels faster than limits.creations allows")
	ErrFull  = errors.New("the guest has as many groups or channels as limits.channels allows")
)

// newNode puts a node below a parent, as its last child.
func (s *Scheduler) newNode(parent int32, k Kind, c NodeConfig) int32 {
	var n int32
	if last := len(s.Unused) - 1; last >= 0 {
		n, s.Unused = s.Unused[last], s.Unused[:last]
	} else {
		n = int32(len(s.Nodes))
		s.Nodes = append(s.Nodes, Node{Lanes: make([]Lane, len(s.Engines))})
	}
	node := &s.Nodes[n]
	lanes := node.Lanes
	*node = Node{
		Gen: node.Gen + 1, Kind: k, Config: c, Parent: parent, First: none, Next: none, Lanes: lanes,
		Chan: ChannelState{Batches: node.Chan.Batches[:0]},
	}
	node.Chan.Made = s.Now
	if k == Channel && cap(node.Chan.Batches) == 0 {
		node.Chan.Batches = make([]Batch, 0, maxBatches)
	}
	for e := range lanes {
		lanes[e] = Lane{Holder: none, Last: none, IdleAt: never, Idle: -1, Counted: s.Now, Filled: s.Now, Period: s.periodNow()}
	}
	if parent == none {
		return n
	}
	*s.link(parent, none) = n
	s.join(n)
	return n
}

// link is what points to a child of p, or to the end of its children.
func (s *Scheduler) link(p, child int32) *int32 {
	at := &s.Nodes[p].First
	for *at != child {
		at = &s.Nodes[*at].Next
	}
	return at
}

// join gives a new node its place among its siblings: neither credit nor debt, but for the
// debts that removed siblings left.
func (s *Scheduler) join(n int32) {
	node := &s.Nodes[n]
	for e := range node.Lanes {
		l, up := &node.Lanes[e], &s.Nodes[node.Parent].Lanes[e]
		l.Tag = max(up.Level, up.Orphan)
		l.Overuse = up.Overdue
		up.Orphan, up.Overdue = 0, 0
		s.Turn++ // at the end of the round
		l.Turn = s.Turn
		l.Tokens = s.fullCap(n)
	}
}

// bequeath gives the debts of a group that ends to its parent, for the next child. The debts
// of a guest end with the guest.
func (s *Scheduler) bequeath(n int32) {
	node := &s.Nodes[n]
	if node.Kind != Inner || node.Parent == root {
		return
	}
	for e := range node.Lanes {
		l, up := &node.Lanes[e], &s.Nodes[node.Parent].Lanes[e]
		if l.Tag > up.Level {
			up.Orphan = max(up.Orphan, up.Level) + l.Tag - up.Level
			l.Tag = up.Level
		}
		up.Overdue += l.Overuse
		l.Overuse = 0
	}
}

// AddNode adds a guest below the [Card], or a group below a guest or group.
func (s *Scheduler) AddNode(now time.Duration, parent ID, c NodeConfig) (ID, error) {
	s.advance(now)
	p, err := s.parent(parent, Inner)
	if err != nil {
		return 0, err
	}
	if err := s.fit(p, &c); err != nil {
		return 0, err
	}
	if g := s.guestOf(p); g != none {
		if s.Nodes[g].Guest.Groups >= s.Config.Limits.Channels {
			return 0, ErrFull
		}
		if !s.mayMake(g) {
			return 0, ErrStorm
		}
		s.Nodes[g].Guest.Groups++
	}
	return s.id(s.newNode(p, Inner, c)), nil
}

// AddChannel adds a channel to a guest or group.
func (s *Scheduler) AddChannel(now time.Duration, group ID, engine int) (ID, error) {
	s.advance(now)
	p, err := s.parent(group, Channel)
	if err != nil {
		return 0, err
	}
	if err := Within("engine", engine, 0, len(s.Engines)-1); err != nil {
		return 0, err
	}
	g := s.guestOf(p)
	if s.Nodes[g].Guest.Channels >= s.Config.Limits.Channels {
		return 0, ErrFull
	}
	if !s.mayMake(g) {
		return 0, ErrStorm
	}
	s.Nodes[g].Guest.Channels++
	n := s.newNode(p, Channel, NodeConfig{Weight: BaseWeight})
	s.Nodes[n].Chan.Engine = uint8(engine)
	return s.id(n), nil
}

// parent returns the node of an id if it can have a child of a kind.
func (s *Scheduler) parent(id ID, k Kind) (int32, error) {
	p := s.find(id)
	if p == none || s.Nodes[p].Kind != Inner || s.Nodes[p].Block&Dying != 0 || p == root && k == Channel {
		return none, &Error{"parent", fmt.Sprint(uint64(id)), "there is no such node, or it cannot have children of this kind"}
	}
	if first := s.Nodes[p].First; first != none && s.Nodes[first].Kind != k {
		return none, &Error{"parent", s.Nodes[p].Config.Name, "a node has channels or groups, not both"}
	}
	return p, nil
}

// fit fills in omitted values of a node's configuration, and checks it.
func (s *Scheduler) fit(parent int32, c *NodeConfig) error {
	if c.Weight == 0 {
		c.Weight = BaseWeight
	}
	if parent != root && (c.Limit != 0 || c.Queued != 0) {
		return &Error{"limit and queued", fmt.Sprintf("%v, %d", c.Limit, c.Queued), "are for guests, not for groups"}
	}
	return c.Check()
}

// mayMake counts a node that a guest makes.
func (s *Scheduler) mayMake(g int32) bool {
	guest := &s.Nodes[g].Guest
	if s.Now-guest.MadeAt >= time.Second {
		guest.Made, guest.MadeAt = 0, s.Now
	}
	if guest.Made >= s.Config.Limits.Creations {
		s.Counts.Storms++
		return false
	}
	guest.Made++
	return true
}

// Remove removes a node with all below it, and drops waiting entries. A node with work on
// the card stays, without turns, until that is done.
func (s *Scheduler) Remove(now time.Duration, id ID) bool {
	s.advance(now)
	n := s.find(id)
	if n == none || n == root {
		s.Counts.BadEvents++
		return false
	}
	s.walk(n, 0, func(m int32, _ int) {
		s.Nodes[m].Block |= Dying
		s.bequeath(m)
		if ch := &s.Nodes[m].Chan; s.Nodes[m].Kind == Channel {
			s.drop(m, false)
			s.setHold(m, ch.Stalled, Granted) // it gets no turns
		}
	})
	s.reap(n)
	return true
}

// reap frees the dying nodes at, below and above n that have nothing on the card.
func (s *Scheduler) reap(n int32) {
	for c := s.Nodes[n].First; c != none; {
		next := s.Nodes[c].Next
		if s.Nodes[c].Block&Dying != 0 && !s.onCard(c) {
			s.reapBelow(c)
		}
		c = next
	}
	for n != root && s.Nodes[n].Block&Dying != 0 && s.Nodes[n].First == none && !s.onCard(n) {
		p := s.Nodes[n].Parent
		s.free(n)
		n = p
	}
}

// reapBelow frees a node with nothing on the card and all below it.
func (s *Scheduler) reapBelow(n int32) {
	for s.Nodes[n].First != none {
		s.reapBelow(s.Nodes[n].First)
	}
	s.free(n)
}

func (s *Scheduler) onCard(n int32) bool {
	for e := range s.Nodes[n].Lanes {
		if s.Nodes[n].Lanes[e].Inflight > 0 {
			return true
		}
	}
	return false
}

// free gives a node's place back. Its account and its debts stay with its parent.
func (s *Scheduler) free(n int32) {
	node := &s.Nodes[n]
	p := &s.Nodes[node.Parent]
	for e := range node.Lanes {
		up, eng := &p.Lanes[e], &s.Engines[e]
		up.Past.Add(node.Lanes[e].account(s.Now))
		if node.Lanes[e].Idle == up.Period {
			up.Left -= int64(node.Config.Weight)
		}
		if up.Holder == n {
			up.Holder = none
		}
		if up.Last == n {
			up.Last = none
		}
		eng.DFQ.forget(n)
		if eng.Running == s.id(n) {
			eng.Running = 0
		}
		if eng.Watch.Channel == s.id(n) {
			eng.Watch = Watch{}
		}
	}
	s.bequeath(n) // for the work that ended since it was removed
	if g := s.guestOf(n); g != n {
		if node.Kind == Channel {
			s.Nodes[g].Guest.Channels--
		} else {
			s.Nodes[g].Guest.Groups--
		}
	}
	*s.link(node.Parent, n) = node.Next
	node.Kind = Free
	s.Unused = append(s.Unused, n)
}

// guestOf returns the guest at or above a node, none for the card.
func (s *Scheduler) guestOf(n int32) int32 {
	if n == root {
		return none
	}
	for s.Nodes[n].Parent != root {
		n = s.Nodes[n].Parent
	}
	return n
}

// isGroup reports whether a node has channels.
func (s *Scheduler) isGroup(n int32) bool {
	c := s.Nodes[n].First
	return c != none && s.Nodes[c].Kind == Channel
}

// walk visits a node and all below it, from the top.
func (s *Scheduler) walk(n int32, depth int, visit func(n int32, depth int)) {
	visit(n, depth)
	for c := s.Nodes[n].First; c != none; c = s.Nodes[c].Next {
		s.walk(c, depth+1, visit)
	}
}

// barred reports whether a node or one above it gets no turns.
func (s *Scheduler) barred(n int32, e int) bool {
	for ; n != root; n = s.Nodes[n].Parent {
		if s.Nodes[n].Block != 0 || s.rests(n, e) {
			return true
		}
	}
	return false
}
