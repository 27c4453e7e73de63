package gate

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// A request that does not end costs its channel: the channel is taken off the card with a fault
// that the guest's driver handles.

// doAlert carries out the oldest alert, if there is one. It needs a guest's lock, which is taken
// before the gate's. The caller has charged what ended: alerts that the card has answered are withdrawn.
func (t *Gate) doAlert() {
	t.lock()
	a, ok := t.s.Alert()
	c, g := t.nodes[a.Channel], t.owners[a.Guest]
	if len(t.s.Alerts) > 0 {
		t.wakeUp()
	}
	t.mu.Unlock()
	switch {
	case !ok:
	case a.Kind == sched.Abort && c != nil:
		defer fault.Contain(c.ch.Guest(), "the scheduling of its channels")
		c.note(trace.Abort, a.Engine, 0)
		c.ch.Abort(card.Engine(a.Engine))
	case a.Kind == sched.Quarantine && g != nil:
		g.Quarantine("several of its requests did not end")
	case a.Kind == sched.Reset && c != nil:
		t.GiveUp(c.ch)
		c.ch.Guest().Quarantine("the card did not abort a request that does not end")
	}
}

// Aborted notes that a channel was stopped, and is to be forgotten when it has left
// the card.
func (t *Gate) Aborted(ch Channel) {
	t.with(ch, func(c *gated) {
		c.Aborting = true
		t.s.Aborting(t.at, c.Node)
		t.wakeUp()
	})
}
