package sched

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Scheduler shares a card.
type Scheduler struct{ core }

// New makes a scheduler for a card with some engines, at the time now.
func New(c Config, engines int, now time.Duration) (*Scheduler, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := Within("engines", engines, 1, MaxEngines); err != nil {
		return nil, err
	}
	s := &Scheduler{core{State: State{Config: c, Engines: make([]Engine, engines)}}}
	for e := range s.Engines {
		s.Engines[e] = Engine{Progress: now, Wake: never}
	}
	s.advance(now)
	s.newNode(none, Inner, NodeConfig{Weight: BaseWeight})
	s.usePolicy(&Config{})
	return s, nil
}

// usePolicy follows the configuration, after an old one.
func (s *Scheduler) usePolicy(old *Config) {
	s.window = math.MaxInt
	s.policy = policies[s.Config.Policy].make(&s.core, old)
}

// Configure changes how the card is shared, under load. It does not touch entries that wait
// or are on the card.
func (s *Scheduler) Configure(now time.Duration, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	s.advance(now)
	old := s.Config
	for n := range s.Nodes { // periods end by the old configuration
		for e := range s.Engines {
			if s.Nodes[n].Kind == Inner {
				s.period(int32(n), e)
			}
		}
	}
	s.Config = c
	s.advance(s.Now)
	for n := range s.Nodes {
		for e := range s.Engines {
			l := &s.Nodes[n].Lanes[e]
			if c.Credit.Period != old.Credit.Period {
				l.Period, l.Idle, l.Left = s.Period, -1, 0
			}
			if c.Policy != old.Policy {
				l.Held, s.Engines[e].Alone = false, 0
			}
		}
	}
	s.usePolicy(&old)
	return nil
}

// Refusals of a node. They are counted, and no mistake of the caller.
var (
	ErrStorm = errors.New("the guest makes groups and channels faster than limits.creations allows")
	ErrFull  = errors.New("the guest has as many groups or channels as limits.channels allows")
)

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
		if err := s.admit(g, &s.Nodes[g].Guest.Groups); err != nil {
			return 0, err
		}
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
	if err := s.admit(g, &s.Nodes[g].Guest.Channels); err != nil {
		return 0, err
	}
	n := s.newNode(p, Channel, NodeConfig{Weight: BaseWeight})
	s.Nodes[n].Chan.Engine = uint8(engine)
	return s.id(n), nil
}

func (s *Scheduler) newNode(parent int32, k Kind, c NodeConfig) int32 {
	n := s.insert(parent, k, c, len(s.Engines))
	s.Nodes[n].Chan.Made = s.Now
	s.join(n)
	return n
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

// admit counts a node that a guest makes, of which it has some.
func (s *Scheduler) admit(g int32, have *int) error {
	guest := &s.Nodes[g].Guest
	if *have >= s.Config.Limits.Channels {
		return ErrFull
	}
	if s.Now-guest.MadeAt >= time.Second {
		guest.Made, guest.MadeAt = 0, s.Now
	}
	if guest.Made >= s.Config.Limits.Creations {
		s.Counts.Storms++
		return ErrStorm
	}
	guest.Made++
	*have++
	return nil
}

// Change changes the configuration of a node, under load.
func (s *Scheduler) Change(now time.Duration, id ID, c NodeConfig) error {
	s.advance(now)
	n := s.find(id)
	if n == none || n == root || s.Nodes[n].Block&Dying != 0 {
		return &Error{"node", fmt.Sprint(uint64(id)), "there is no such node"}
	}
	node := &s.Nodes[n]
	if err := s.fit(node.Parent, &c); err != nil {
		return err
	}
	for e := range node.Lanes {
		s.reweigh(n, e, c.Weight)
	}
	old := node.Config
	node.Config = c
	if c.Cap != old.Cap {
		for e := range node.Lanes {
			node.Lanes[e].Rest = Rest{Tokens: s.fullCap(n), Filled: s.Now}
			s.period(node.Parent, e)
			s.policy.Arrive(n, e) // time that it could not use while it rested is not saved
		}
	}
	return nil
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
		if s.Nodes[m].Kind == Channel {
			s.drop(m, false)
			s.setHold(m, s.Nodes[m].Chan.Stalled, Granted) // it gets no turns
		}
	})
	s.reap(n)
	return true
}

// reap frees the dying nodes at, below and above n that have nothing on the card.
func (s *Scheduler) reap(n int32) {
	for top := n; s.Nodes[top].Block&Dying != 0; top = s.Nodes[top].Parent {
		n = top
	}
	if s.Nodes[n].Block&Dying != 0 {
		s.prune(n)
	}
}

// prune frees a dying node and those below it, but for what is above work on the card.
func (s *Scheduler) prune(n int32) {
	for c := s.Nodes[n].First; c != none; {
		next := s.Nodes[c].Next
		s.prune(c)
		c = next
	}
	if s.Nodes[n].First == none && !s.onCard(n) {
		s.free(n)
	}
}

// free gives a node's place back.
func (s *Scheduler) free(n int32) {
	s.leave(n)
	if g := s.guestOf(n); g != n {
		if s.Nodes[n].Kind == Channel {
			s.Nodes[g].Guest.Channels--
		} else {
			s.Nodes[g].Guest.Groups--
		}
	}
	s.cut(n)
}
