package gate

import "github.com/umbra-gpu/umbra/aggregator/sched"

// A request that does not end costs its channel: the channel is taken off the card with a fault
// that the guest's driver handles.

// do carries out deferred work.
func (t *Gate) do(w deferredWork) {
	for _, c := range w.resumed {
		c.ch.Resume()
	}
	for _, a := range w.alerts {
		switch a.Kind {
		case sched.Abort:
			if ch := t.accused(a.Channel); ch != nil {
				ch.Abort(lanes[a.Engine])
			}
		case sched.Quarantine:
			if g := t.owner(a.Guest); g != nil {
				g.Quarantine("several of its requests did not end")
			}
		case sched.Reset:
			if ch := t.accused(a.Channel); ch != nil {
				t.GiveUp(ch)
				ch.Guest().Quarantine("the card did not abort a request that does not end")
			}
		}
	}
}

// accused is the channel of a node.
func (t *Gate) accused(id sched.ID) Channel {
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
	if c := t.chans[ch.Card().ID()]; c != nil && c.ch == ch {
		c.aborting = true
		t.requestPoll()
	}
}
