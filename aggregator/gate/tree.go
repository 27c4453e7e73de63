package gate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// The scheduler's tree has the guests below the card, below each guest its groups of channels
// (see Grouping), and below those the channels.

// ErrNoScheduler means that there is no scheduler.
var ErrNoScheduler = errors.New("aggregator: there is no scheduler")

// ErrRemoved means that a guest has been removed.
var ErrRemoved = errors.New("aggregator: the guest was removed")

func (t *Gate) AddGuest(g Guest, c sched.NodeConfig, by Grouping) error {
	if t == nil {
		return nil
	}
	if by >= groupings {
		return fmt.Errorf("aggregator: grouping %d: must be one of %v", by, Groupings())
	}
	t.lock()
	defer t.mu.Unlock()
	c.Name = g.Name()
	id, err := t.s.AddNode(t.at, sched.Card, c)
	if err != nil {
		return err
	}
	t.guests[g] = &ShareState{Node: id, By: by}
	t.owners[id] = g
	return nil
}

func (t *Gate) RemoveGuest(g Guest) {
	if t == nil {
		return
	}
	t.lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return
	}
	t.s.Remove(t.at, sh.Node)
	delete(t.guests, g)
	delete(t.owners, sh.Node)
}

// Forgive ends the quarantine of a guest that was reset.
func (t *Gate) Forgive(g Guest) {
	if t == nil {
		return
	}
	t.lock()
	defer t.mu.Unlock()
	if sh := t.guests[g]; sh != nil {
		sh.First = false
		t.s.Release(t.at, sh.Node)
	}
}

// Add puts a channel that was bound to an instance block into the tree. The card does not run
// it yet, and has at most the one entry that the channel was in the middle of.
func (t *Gate) Add(ch Channel, ring card.Ring, get uint32) error {
	if t == nil {
		return nil
	}
	t.lock()
	defer t.mu.Unlock()
	t.refresh()
	key, group, err := t.join(t.guests[ch.Guest()], ch)
	if err != nil {
		return err
	}
	node, err := t.s.AddChannel(t.at, group, 0)
	if err != nil {
		t.leave(ch.Guest(), key)
		return err
	}
	c := &gated{ch, ChannelState{Node: node, Group: key, Last: t.card.Use(ch.Card().ID())}}
	if ring.Log2 < 32 {
		c.Size = 1 << ring.Log2
	}
	c.Sent = get & (c.Size - 1)
	c.LastPut, c.Accepted = c.Sent, c.Sent
	for id := int(ch.Card().ID()); id >= len(t.chans); {
		t.chans = append(t.chans, nil)
	}
	t.chans[ch.Card().ID()], t.nodes[node] = c, c
	if c.Last.Underway {
		c.Paused, c.Inflight = true, 1
		t.s.Underway(t.at, node)
	}
	t.stall(c, true) // until it is enabled
	return nil
}

// join finds the group of a channel, or makes it.
func (t *Gate) join(sh *ShareState, ch Channel) (GroupKey, sched.ID, error) {
	key := sh.By.keyOf(ch)
	if gr := sh.group(key); gr != nil {
		gr.Chans++
		return key, gr.Node, nil
	}
	if !sh.First {
		sh.First, sh.Kernel = true, key
	}
	id, err := t.s.AddNode(t.at, sh.Node, sched.NodeConfig{Name: sh.nameOf(key)})
	if err == nil {
		sh.Groups = append(sh.Groups, GroupState{key, id, 1})
	}
	return key, id, err
}

func (t *Gate) leave(g Guest, key GroupKey) {
	sh := t.guests[g]
	gr := sh.group(key)
	if gr.Chans--; gr.Chans > 0 {
		return
	}
	t.s.Remove(t.at, gr.Node)
	sh.Groups = slices.DeleteFunc(sh.Groups, func(gr GroupState) bool { return gr.Chans == 0 })
	if len(sh.Groups) == 0 {
		sh.First = false // the driver detached, and another one begins
	}
}

// Remove takes a channel that is off the card from the tree, after charging its last work.
func (t *Gate) Remove(ch Channel) {
	t.with(ch, func(c *gated) {
		t.look(c)
		t.drop(c)
		t.s.Remove(t.at, c.Node)
		t.chans[ch.Card().ID()] = nil
		delete(t.nodes, c.Node)
		t.leave(ch.Guest(), c.Group)
		t.step()
	})
}

// GiveUp marks a channel as ended, or as one that the card does not stop. It gets no more
// turns, and nothing waits for it.
func (t *Gate) GiveUp(ch Channel) {
	t.with(ch, func(c *gated) {
		c.Over = true
		t.stall(c, true)
		t.step()
	})
}
