package sched

import (
	"errors"
	"fmt"
	"time"
)

// Refusals of a node. They are counted, and no fault of the caller's.
var (
	ErrStorm = errors.New("the guest makes groups and channels faster than limits.creations allows")
	ErrFull  = errors.New("the guest has as many channels as limits.channels allows")
)

// Scheduler shares a card.
type Scheduler struct {
	State

	sides []side // by node
	rests []rest // a heap by time: who has used up a cap
	names map[nameKey]int32
	kinds [policies]int // how many nodes have each policy, with the card
	least time.Duration // limit of a request of any guest
	// foretold is how much work each engine has on the card, by what is known of the
	// channels that are not stalled: the sum of Lane.Pending.
	foretold []time.Duration
	loaded   [][]int32 // by engine: channels with requests there
	looks    uint64    // nodes that were looked at: what decisions cost, whatever the machine
}

type nameKey struct {
	parent int32
	name   string
}

// New makes a scheduler for a card with some engines, at the time now.
func New(c Config, engines int, now time.Duration) (*Scheduler, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if engines < 1 || engines > MaxEngines {
		return nil, &Error{"engines", fmt.Sprint(engines), fmt.Sprintf("must be 1 to %d", MaxEngines)}
	}
	s := &Scheduler{State: State{Version: StateVersion, Config: c, Now: now, Engines: make([]Engine, engines)}}
	for e := range s.Engines {
		s.Engines[e] = Engine{Progress: now, Wake: never, DFQ: DFQState{Group: none, Since: now}}
	}
	s.place(none, Inner, NodeConfig{Weight: BaseWeight})
	s.rebuild()
	return s, nil
}

// place puts a node below a parent, as its last child.
func (s *Scheduler) place(parent int32, k Kind, c NodeConfig) int32 {
	var n int32
	if last := len(s.Unused) - 1; last >= 0 {
		n, s.Unused = s.Unused[last], s.Unused[:last]
	} else {
		n = int32(len(s.Nodes))
		s.Nodes = append(s.Nodes, Node{Lanes: make([]Lane, len(s.Engines))})
		s.sides = append(s.sides, newSide(len(s.Engines)))
	}
	old := &s.Nodes[n]
	lanes := old.Lanes
	*old = Node{
		Gen: old.Gen + 1, Kind: k, Config: c, Parent: parent, First: none, Next: none, Prev: none, Lanes: lanes,
		Guest: GuestState{Last: none}, Chan: ChannelState{Batches: old.Chan.Batches[:0]},
	}
	s.kinds[c.Policy]++
	if k == Channel && cap(old.Chan.Batches) == 0 {
		old.Chan.Batches = make([]Batch, 0, maxBatches)
	}
	for e := range lanes {
		lanes[e] = Lane{Holder: none, Last: none, IdleAt: never, Idle: -1, Counted: s.Now, Filled: s.Now, Period: s.periodNow()}
	}
	if parent != none {
		p := &s.Nodes[parent]
		last := none
		for c := p.First; c != none; c = s.Nodes[c].Next { // made seldom, so few look
			last = c
		}
		if old.Prev = last; last == none {
			p.First = n
		} else {
			s.Nodes[last].Next = n
		}
	}
	return n
}

// AddNode adds a guest below the [Card], or a group below a guest or group.
func (s *Scheduler) AddNode(now time.Duration, parent ID, c NodeConfig) (ID, error) {
	s.advance(now)
	p := s.find(parent)
	if p == none || s.Nodes[p].Kind != Inner || s.Nodes[p].Block&Dying != 0 {
		return 0, &Error{"parent", nameOfID(parent), "there is no such node"}
	}
	if first := s.Nodes[p].First; first != none && s.Nodes[first].Kind == Channel {
		return 0, &Error{"parent", s.label(p), "has channels; a node has channels or groups, not both"}
	}
	if err := s.fit(p, &c); err != nil {
		return 0, err
	}
	g := s.guestOf(p)
	if g != none {
		if !s.mayMake(g) {
			return 0, ErrStorm
		}
		if guest := &s.Nodes[g].Guest; guest.Groups >= s.Config.Limits.Groups {
			s.Counts.Overflow++
			if last := guest.Last; last != none {
				return s.id(last), nil
			}
			return 0, &Error{"limits.groups", fmt.Sprint(s.Config.Limits.Groups), "the guest has as many"}
		}
	}
	n := s.place(p, Inner, c)
	if g != none {
		s.Nodes[g].Guest.Groups++
		s.Nodes[g].Guest.Last = n
	}
	s.born(n)
	s.least = s.leastLimit()
	return s.id(n), nil
}

// AddChannel adds a channel to a guest or group.
func (s *Scheduler) AddChannel(now time.Duration, group ID, engine int) (ID, error) {
	s.advance(now)
	p := s.find(group)
	if p == none || p == root || s.Nodes[p].Kind != Inner || s.Nodes[p].Block&Dying != 0 {
		return 0, &Error{"group", nameOfID(group), "there is no such guest or group"}
	}
	if first := s.Nodes[p].First; first != none && s.Nodes[first].Kind != Channel {
		return 0, &Error{"group", s.label(p), "has groups; a node has channels or groups, not both"}
	}
	if engine < 0 || engine >= len(s.Engines) {
		return 0, &Error{"engine", fmt.Sprint(engine), fmt.Sprintf("must be 0 to %d", len(s.Engines)-1)}
	}
	g := s.guestOf(p)
	if s.Nodes[g].Guest.Channels >= s.Config.Limits.Channels {
		return 0, ErrFull
	}
	if !s.mayMake(g) {
		return 0, ErrStorm
	}
	n := s.place(p, Channel, NodeConfig{Weight: BaseWeight})
	s.Nodes[n].Chan.Engine = uint8(engine)
	s.Nodes[g].Guest.Channels++
	s.born(n)
	return s.id(n), nil
}

// fit fills in what a node's configuration does not say, and checks it.
func (s *Scheduler) fit(parent int32, c *NodeConfig) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Weight == 0 {
		c.Weight = BaseWeight
	}
	if _, ok := s.names[nameKey{parent, c.Name}]; ok && c.Name != "" {
		return &Error{"name", c.Name, "there is one of this name already in " + s.label(parent)}
	}
	if parent != root && (c.Limit != 0 || c.Queued != 0) {
		return &Error{"limit and queued", fmt.Sprintf("%v, %d", c.Limit, c.Queued), "are of guests, not of groups"}
	}
	return nil
}

// born gives a new node its place among its siblings: neither credit nor debt,
// unless one that is gone left some.
func (s *Scheduler) born(n int32) {
	node := &s.Nodes[n]
	from := none // a sibling that is going, with work on the card that nobody was charged for
	for c := s.Nodes[node.Parent].First; c != none && node.Kind == Inner && node.Parent != root; c = s.Nodes[c].Next {
		if s.Nodes[c].Block&Dying != 0 && s.find(s.Nodes[c].Heir) == none {
			s.Nodes[c].Heir, from = s.id(n), c
			break
		}
	}
	if node.Config.Name != "" {
		s.names[nameKey{node.Parent, node.Config.Name}] = n
	}
	for e := range node.Lanes {
		p := &s.Nodes[s.over(n)].Lanes[e]
		heir := &s.Nodes[node.Parent].Lanes[e]
		most := 0
		for i := range heir.Orphans {
			if heir.Orphans[i] > heir.Orphans[most] {
				most = i
			}
		}
		l := &node.Lanes[e]
		l.Tag = max(p.Level, heir.Orphans[most])
		if from != none {
			l.Tag = max(l.Tag, s.Nodes[from].Lanes[e].Tag)
			l.Overuse = s.Nodes[from].Lanes[e].Overuse
		}
		heir.Orphans[most] = 0
		l.Overuse, heir.OrphanOveruse = max(l.Overuse, heir.OrphanOveruse), 0
		s.Turn++ // at the end of the round
		l.Turn = s.Turn
		l.Tokens = s.fullCap(n)
	}
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

// Remove takes a node away, with all below it. Entries that wait are dropped. One
// that has work on the card stays, without turns, until that is done.
func (s *Scheduler) Remove(now time.Duration, id ID) bool {
	s.advance(now)
	n := s.find(id)
	if n == none || n == root {
		s.Counts.UnknownChannel++
		return false
	}
	for m, stop := n, s.after(n); m != stop; m, _ = s.follow(m, 0) {
		if key := (nameKey{s.Nodes[m].Parent, s.Nodes[m].Config.Name}); s.names[key] == m { // free at once
			delete(s.names, key)
		}
		s.Nodes[m].Block |= Dying
		if s.Nodes[m].Kind == Channel {
			s.drop(m, false)
		}
	}
	s.resettle(n)
	s.reap(n)
	return true
}

func (s *Scheduler) after(n int32) int32 {
	next, _ := s.skip(n, 0)
	return next
}

// reap frees the dying nodes below n, and n itself and those above it, that have
// nothing on the card.
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
		m := n
		for s.Nodes[m].First != none {
			m = s.Nodes[m].First
		}
		s.free(m)
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

// free gives a node's place back. Its account and its debt stay with its parent.
func (s *Scheduler) free(n int32) {
	node := &s.Nodes[n]
	p := &s.Nodes[node.Parent]
	for e := range node.Lanes {
		s.unready(n, e)
		s.unrest(n, e)
		l, up := &node.Lanes[e], &p.Lanes[e]
		if l.Idle == up.Period {
			up.Left -= int64(node.Config.Weight)
		}
		up.Past.Add(l.account(s.Now))
		if node.Kind == Inner && node.Parent != root && s.find(node.Heir) == none {
			up.OrphanOveruse = max(up.OrphanOveruse, l.Overuse)
		}
		if over := &s.Nodes[s.over(n)].Lanes[e]; l.Tag > over.Level && node.Kind == Inner && node.Parent != root && s.find(node.Heir) == none {
			least := 0
			for i := range up.Orphans {
				if up.Orphans[i] < up.Orphans[least] {
					least = i
				}
			}
			up.Orphans[least] = max(up.Orphans[least], l.Tag)
		}
		for _, m := range []int32{node.Parent, root} {
			if h := &s.Nodes[m].Lanes[e]; h.Holder == n {
				h.Holder = none
			}
			if h := &s.Nodes[m].Lanes[e]; h.Last == n {
				h.Last = none
			}
		}
		s.Engines[e].DFQ.forget(n)
		if s.Engines[e].Running == s.id(n) {
			s.Engines[e].Running = 0
		}
		s.Engines[e].Watch.forget(s.id(n))
	}
	if g := s.guestOf(n); g != none && g != n {
		guest := &s.Nodes[g].Guest
		if node.Kind == Channel {
			guest.Channels--
		} else {
			guest.Groups--
			if guest.Last == n {
				guest.Last = s.otherGroup(g, n)
			}
		}
	}
	if node.Prev == none {
		p.First = node.Next
	} else {
		s.Nodes[node.Prev].Next = node.Next
	}
	if node.Next != none {
		s.Nodes[node.Next].Prev = node.Prev
	}
	node.Kind = Gone
	s.kinds[node.Config.Policy]--
	s.Unused = append(s.Unused, n)
	if node.Parent == root {
		s.least = s.leastLimit()
	}
}

// otherGroup finds a group that bogus ones may share: the guest's first.
func (s *Scheduler) otherGroup(g, not int32) int32 {
	c := s.Nodes[g].First
	for c != none && (c == not || s.Nodes[c].Block&Dying != 0) {
		c = s.Nodes[c].Next
	}
	return c
}

// guestOf returns the guest above a node, or the node if it is one; none for the
// card.
func (s *Scheduler) guestOf(n int32) int32 {
	if n == root {
		return none
	}
	for s.Nodes[n].Parent != root {
		n = s.Nodes[n].Parent
	}
	return n
}

func nameOfID(id ID) string { return fmt.Sprint(uint64(id)) }

// label names a node in errors.
func (s *Scheduler) label(n int32) string {
	switch name := s.Nodes[n].Config.Name; {
	case n == root:
		return "the card"
	case name == "":
		return fmt.Sprintf("node %d", n)
	default:
		return name
	}
}

// over is the node among whose children n takes turns: its parent, or the card
// for groups that compete across guests.
func (s *Scheduler) over(n int32) int32 {
	node := &s.Nodes[n]
	if s.Config.Hierarchy == Tree || node.Kind == Channel {
		return node.Parent
	}
	return root
}

// competes tells whether a node takes turns in this hierarchy.
func (s *Scheduler) competes(n int32) bool {
	return n != root && (s.Config.Hierarchy == Tree || s.Nodes[n].Kind == Channel || s.isGroup(n))
}

// isGroup tells whether a node has channels.
func (s *Scheduler) isGroup(n int32) bool {
	c := s.Nodes[n].First
	return c != none && s.Nodes[c].Kind == Channel
}

// discipline is how the children of a node take turns.
func (s *Scheduler) discipline(n int32) Policy {
	if card := s.Config.Policy; n == root || card == None || card == DFQ {
		if card == DFQ {
			return None // what is not held takes the card's own turns
		}
		return card
	}
	if p := s.Nodes[n].Config.Policy; p != Inherit {
		return p
	}
	if s.isGroup(n) {
		return None // channels of one process: the card's own turns
	}
	for n = s.Nodes[n].Parent; n != root; n = s.Nodes[n].Parent {
		if p := s.Nodes[n].Config.Policy; p != Inherit {
			return p
		}
	}
	return s.Config.Policy
}
