package gate

import (
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// A request that does not end costs its channel: the channel is taken off the card with a fault
// that the guest's driver handles.

// doAlert carries out the oldest alert, if there is one. It needs a guest's lock, which is taken
// before the gate's. The caller has polled: alerts that the card has answered are withdrawn.
func (t *Gate) doAlert() {
	t.mu.Lock()
	a, ok := t.s.Alert()
	t.mu.Unlock()
	if !ok {
		return
	}
	switch a.Kind {
	case sched.Abort:
		if ch := t.channel(a.Channel); ch != nil {
			contained(ch, func() { ch.Abort(lanes[a.Engine]) })
		}
	case sched.Quarantine:
		if g := t.owner(a.Guest); g != nil {
			g.Quarantine("several of its requests did not end")
		}
	case sched.Reset:
		if ch := t.channel(a.Channel); ch != nil {
			t.GiveUp(ch)
			ch.Guest().Quarantine("the card did not abort a request that does not end")
		}
	}
}

// contained calls f, which does something about a channel.
func contained(ch Channel, f func()) {
	defer fault.Contain(ch.Guest(), "the scheduling of its channels")
	f()
}

// channel returns the channel of a node, nil if it was removed.
func (t *Gate) channel(id sched.ID) Channel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.nodes[id]; c != nil {
		return c.ch
	}
	return nil
}

func (t *Gate) owner(id sched.ID) Guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[id]
}

// Aborted notes that a channel was stopped, and is to be forgotten when it has left
// the card.
func (t *Gate) Aborted(ch Channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.find(ch); c != nil {
		c.Aborting = true
		t.s.Aborting(t.now(), c.Node)
		t.requestPoll()
	}
}
