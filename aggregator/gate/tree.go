package gate

import (
	"errors"
	"fmt"
	"time"

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
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Name = g.Name()
	id, err := t.s.AddNode(t.now(), sched.Card, c)
	if err != nil {
		return err
	}
	t.guests[g] = &share{node: id, by: by, groups: make(map[groupKey]*group)}
	t.owners[id] = g
	return nil
}

func (t *Gate) RemoveGuest(g Guest) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return
	}
	t.s.Remove(t.now(), sh.node)
	delete(t.guests, g)
	delete(t.owners, sh.node)
}

// Forgive ends the quarantine of a guest that was reset.
func (t *Gate) Forgive(g Guest) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if sh := t.guests[g]; sh != nil {
		sh.first = false
		t.s.Release(t.now(), sh.node)
	}
}

// Add puts a channel that was bound to an instance block into the tree. The card does not run
// it yet, and has at most the one entry that the channel was in the middle of.
func (t *Gate) Add(ch Channel, ring card.Ring, get uint32) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	gr, err := t.join(now, t.guests[ch.Guest()], ch)
	if err != nil {
		return err
	}
	node, err := t.s.AddChannel(now, gr.node, 0)
	if err != nil {
		t.leave(now, ch.Guest(), gr)
		return err
	}
	c := &gated{ch: ch, node: node, group: gr, last: t.card.Use(ch.Card().ID())}
	if ring.Log2 < 32 {
		c.size = 1 << ring.Log2
	}
	c.sent = get & (c.size - 1)
	c.lastPut, c.accepted = c.sent, c.sent
	t.chans[ch.Card().ID()], t.nodes[node] = c, c
	if c.last.Underway {
		c.held = true
		t.s.Submit(now, node, 1)
	} else {
		t.stall(now, c, c.last.Barred)
	}
	return nil
}

// join finds the group of a channel, or makes it.
func (t *Gate) join(now time.Duration, sh *share, ch Channel) (*group, error) {
	key := sh.by.keyOf(ch)
	if gr := sh.groups[key]; gr != nil {
		gr.chans++
		return gr, nil
	}
	if !sh.first {
		sh.first, sh.kernel = true, key
	}
	id, err := t.s.AddNode(now, sh.node, sched.NodeConfig{Name: sh.nameOf(key)})
	if err != nil {
		return nil, err
	}
	gr := &group{key: key, node: id, chans: 1}
	sh.groups[key] = gr
	return gr, nil
}

func (t *Gate) leave(now time.Duration, g Guest, gr *group) {
	if gr.chans--; gr.chans > 0 {
		return
	}
	sh := t.guests[g]
	delete(sh.groups, gr.key)
	if len(sh.groups) == 0 {
		sh.first = false // the driver detached, and another one begins
	}
	t.s.Remove(now, gr.node)
}

// Remove takes a channel that is off the card from the tree, after charging its last work.
func (t *Gate) Remove(ch Channel) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chans[ch.Card().ID()]
	if c == nil || c.ch != ch {
		return
	}
	t.meter(c)
	now := t.now()
	t.drop(now, c)
	t.s.Remove(now, c.node)
	t.chans[ch.Card().ID()] = nil
	delete(t.nodes, c.node)
	t.leave(now, ch.Guest(), c.group)
	t.step()
}

// GiveUp marks a channel as ended, or as one that the card does not stop. It gets no more
// turns, and nothing waits for it.
func (t *Gate) GiveUp(ch Channel) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chans[ch.Card().ID()]; c != nil && c.ch == ch {
		c.over = true
		t.stall(t.now(), c, true)
		t.step()
	}
}
