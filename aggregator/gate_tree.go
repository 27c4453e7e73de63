package aggregator

import (
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// The scheduler's tree has the guests below the card, below each guest its groups of channels
// (see Grouping), and below those the channels.

// ErrNoScheduler means that the aggregator was made without a scheduler.
var ErrNoScheduler = errors.New("aggregator: there is no scheduler")

// ErrRemoved means that a guest has been removed.
var ErrRemoved = errors.New("aggregator: the guest was removed")

func (t *gate) addGuest(g *Guest, c sched.NodeConfig, by Grouping) error {
	if by >= groupings {
		return fmt.Errorf("aggregator: grouping %d: must be one of %v", by, Groupings())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Name = g.name
	id, err := t.s.AddNode(t.now(), sched.Card, c)
	if err != nil {
		return err
	}
	t.guests[g] = &share{node: id, by: by, groups: make(map[groupKey]*group)}
	t.owners[id] = g
	return nil
}

func (t *gate) removeGuest(g *Guest) {
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

// forgive ends the quarantine of a guest that was reset.
func (t *gate) forgive(g *Guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sh := t.guests[g]; sh != nil {
		sh.first = false
		t.s.Release(t.now(), sh.node)
	}
}

// add puts a channel that was bound to an instance block into the tree. The card does not run
// it yet, and has at most the one entry that the channel was in the middle of.
func (t *gate) add(ch *channel, block []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	gr, err := t.join(now, t.guests[ch.guest], ch)
	if err != nil {
		return err
	}
	node, err := t.s.AddChannel(now, gr.node, 0)
	if err != nil {
		t.leave(now, ch.guest, gr)
		return err
	}
	c := &gated{ch: ch, node: node, group: gr, last: t.card.Use(ch.id)}
	if log2 := gf100.InstGPLimit2.Get(block); log2 < 32 {
		c.size = 1 << log2
	}
	c.sent = gf100.InstGPGet.Get(block) & (c.size - 1)
	c.lastPut, c.accepted = c.sent, c.sent
	t.chans[ch.id], t.nodes[node] = c, c
	if c.last.Underway {
		c.held = true
		t.s.Submit(now, node, 1)
	} else {
		t.stall(now, c, c.last.Barred)
	}
	return nil
}

// join finds the group of a channel, or makes it.
func (t *gate) join(now time.Duration, sh *share, ch *channel) (*group, error) {
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

func (t *gate) leave(now time.Duration, g *Guest, gr *group) {
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

// remove takes a channel that is off the card from the tree, after charging its last work.
func (t *gate) remove(ch *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chans[ch.id]
	if c == nil || c.ch != ch {
		return
	}
	t.meter(c)
	now := t.now()
	t.drop(now, c)
	t.s.Remove(now, c.node)
	t.chans[ch.id] = nil
	delete(t.nodes, c.node)
	t.leave(now, ch.guest, c.group)
	t.step()
}

// giveUp marks a channel as ended, or as one that the card does not stop. It gets no more
// turns, and nothing waits for it.
func (t *gate) giveUp(ch *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chans[ch.id]; c != nil && c.ch == ch {
		c.over = true
		t.stall(t.now(), c, true)
		t.step()
	}
}

// Schedule returns how the card is shared, false without a scheduler.
func (a *Aggregator) Schedule() (sched.Config, bool) {
	if a.gate == nil {
		return sched.Config{}, false
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	return a.gate.s.Config, true
}

// SetSchedule changes how the card is shared, under load.
func (a *Aggregator) SetSchedule(c sched.Config) error {
	if a.gate == nil {
		return ErrNoScheduler
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	err := a.gate.s.Configure(a.gate.now(), c)
	a.gate.step()
	a.gate.requestPoll()
	return err
}

// Ledger returns what the card, its guests, their groups and channels had of the card. It is
// empty without a scheduler.
func (a *Aggregator) Ledger() []sched.Entry {
	if a.gate == nil {
		return nil
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	for _, c := range a.gate.chans {
		if c != nil {
			a.gate.meter(c)
		}
	}
	now := a.gate.step()
	ledger := a.gate.s.Ledger(now)
	for i := range ledger {
		if c := a.gate.nodes[ledger[i].ID]; c != nil {
			ledger[i].Name = fmt.Sprintf("channel %d", c.ch.gid) // as its guest calls it
		}
	}
	return ledger
}

var laneNames = [len(lanes)]string{"graphics", "copy 0", "copy 1"}

// LedgerEngines returns the names of the engines of the ledger's accounts, in their order.
func LedgerEngines() []string { return append([]string(nil), laneNames[:]...) }

// ScheduleCounts returns the scheduler's counts of unusual events.
func (a *Aggregator) ScheduleCounts() sched.Counts {
	if a.gate == nil {
		return sched.Counts{}
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	return a.gate.s.Counted()
}

// SetShare changes a guest's weight, cap, priority and limits, under load.
func (g *Guest) SetShare(c sched.NodeConfig) error {
	t := g.agg.gate
	if t == nil {
		return ErrNoScheduler
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return fmt.Errorf("%w: %s", ErrRemoved, g.name)
	}
	c.Name = g.name
	err := t.s.Change(t.now(), sh.node, c)
	t.step()
	t.requestPoll()
	return err
}
