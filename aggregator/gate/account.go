package gate

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Schedule returns how the card is shared, false without a scheduler.
func (t *Gate) Schedule() (sched.Config, bool) {
	if t == nil {
		return sched.Config{}, false
	}
	t.lock()
	defer t.mu.Unlock()
	return t.s.Config, true
}

// SetSchedule changes how the card is shared, under load.
func (t *Gate) SetSchedule(c sched.Config) error {
	if t == nil {
		return ErrNoScheduler
	}
	t.lock()
	defer t.mu.Unlock()
	t.refresh()
	err := t.s.Configure(t.at, c)
	t.step()
	return err
}

// Ledger returns what the card, its guests, their groups and channels had of the card. It is
// empty without a scheduler.
func (t *Gate) Ledger() []sched.Entry {
	if t == nil {
		return nil
	}
	t.lock()
	defer t.mu.Unlock()
	t.charge()
	for _, c := range t.chans {
		if c != nil {
			t.look(c)
		}
	}
	t.step()
	ledger := t.s.Ledger(t.at)
	for i := range ledger {
		if c := t.nodes[ledger[i].ID]; c != nil {
			ledger[i].Name = fmt.Sprintf("channel %d", c.ch.Number()) // as its guest calls it
		}
	}
	return ledger
}

// Counts returns the scheduler's counts of unusual events.
func (t *Gate) Counts() sched.Counts {
	if t == nil {
		return sched.Counts{}
	}
	t.lock()
	defer t.mu.Unlock()
	return t.s.Counts
}

// RequestLimit returns how long one request of a guest may run; 0 is for ever.
func (t *Gate) RequestLimit(g Guest) time.Duration {
	if t == nil {
		return 0
	}
	t.lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return 0
	}
	return t.s.RequestLimit(sh.Node)
}

// SetShare changes a guest's weight, cap, priority and limits, under load.
func (t *Gate) SetShare(g Guest, c sched.NodeConfig) error {
	if t == nil {
		return ErrNoScheduler
	}
	t.lock()
	defer t.mu.Unlock()
	sh := t.guests[g]
	if sh == nil {
		return fmt.Errorf("%w: %s", ErrRemoved, g.Name())
	}
	c.Name = g.Name()
	t.refresh()
	err := t.s.Change(t.at, sh.Node, c)
	t.step()
	return err
}
