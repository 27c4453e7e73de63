package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// What the gate does about a request that does not end: its channel, and no other,
// is taken off the card with a fault that its guest's driver knows what to do about.

// do runs the goroutine's errands.
func (t *gate) do(e errands) {
	for _, c := range e.resumed {
		c.ch.resumeChannel()
	}
	for _, a := range e.alerts {
		switch a.Kind {
		case sched.Abort:
			if ch := t.accused(a.Channel); ch != nil {
				ch.abort(lanes[a.Engine])
			}
		case sched.Quarantine:
			if g := t.owner(a.Guest); g != nil {
				g.quarantine("its requests do not end, again and again")
			}
		case sched.Reset:
			if ch := t.accused(a.Channel); ch != nil {
				t.giveUp(ch)
				ch.guest.quarantine("the card does not let go of a request that does not end")
			}
		}
	}
}

// accused is the channel of a node.
func (t *gate) accused(id sched.ID) *channel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.nodes[id]; c != nil {
		return c.ch
	}
	return nil
}

func (t *gate) owner(id sched.ID) *Guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[id]
}

// aborted notes that a channel was stopped, and is to be forgotten when it has left
// the card.
func (t *gate) aborted(ch *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chans[ch.id]; c != nil && c.ch == ch {
		c.aborting = true
		t.look()
	}
}

// goOn lets a channel run whose turn it is to go on with what it was in the middle
// of when it was unbound.
func (ch *channel) resumeChannel() {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := &g.channels[ch.gid]; c.ch == ch && c.enabled && !g.rebinding(ch.gid) {
		g.resumeChannel(ch)
	}
}

// abort ends a channel whose request does not end on an engine.
func (ch *channel) abort(engine int) {
	g := ch.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels[ch.gid].ch != ch || g.rebinding(ch.gid) {
		return // its guest ends it
	}
	g.stats.Runaways.Add(1)
	g.agg.ctl.disable(ch.id)
	if !ch.stopped || ch.held {
		f := gf100.EngineClients[engine].Fault(ch.guestInst, 0, false, uint8(shadowpt.PageNotPresent))
		ch.stop(channelError{kind: mmuFault, fault: f})
	}
	g.pending.preempt.add(ch.gid)
	g.wake.Broadcast()
	g.agg.gate.aborted(ch)
}
