package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A request that does not end costs its channel: the channel is taken off the card with a fault
// that the guest's driver handles.

// do carries out deferred work.
func (t *gate) do(w deferredWork) {
	for _, c := range w.resumed {
		c.ch.resumeChannel()
	}
	for _, a := range w.alerts {
		switch a.Kind {
		case sched.Abort:
			if ch := t.accused(a.Channel); ch != nil {
				ch.abort(lanes[a.Engine])
			}
		case sched.Quarantine:
			if g := t.owner(a.Guest); g != nil {
				g.quarantine("several of its requests did not end")
			}
		case sched.Reset:
			if ch := t.accused(a.Channel); ch != nil {
				t.giveUp(ch)
				ch.guest.quarantine("the card did not abort a request that does not end")
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

// aborted records that a channel was stopped, and is dropped when it has left the card.
func (t *gate) aborted(ch *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chans[ch.id]; c != nil && c.ch == ch {
		c.aborting = true
		t.requestPoll()
	}
}

// resumeChannel lets a channel continue the entry in which it was unbound, at its turn.
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
