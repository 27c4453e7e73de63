package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
)

// A guest is quarantined when the card cannot work for it: the card does not give its
// channels back, or the guest stops the engines again and again. All its channels end.
// Later requests change only its own registers and memory, and complete immediately as
// far as the guest can see; none reaches the card. A reset ends the quarantine.

// QuarantineReason returns why the guest is quarantined, "" if it is not.
func (g *Guest) QuarantineReason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Quarantined
}

// Quarantine stops the guest's channels until a reset.
func (g *Guest) Quarantine(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quarantineLocked(why)
}

// quarantineLocked stops the guest's channels immediately; its worker closes them.
func (g *Guest) quarantineLocked(why string) {
	if g.state.Quarantined != "" {
		return
	}
	g.state.Quarantined = why
	g.quarantined.Store(true)
	g.stats.Quarantines.Add(1)
	for id := range uint32(channels.Max) {
		if ch := g.channels.Channel(id); ch != nil {
			ch.Halt()
			g.rebindSoon(id)
		}
	}
	g.wake.Broadcast()
}

// leaveQuarantine is part of a reset. The guest starts with empty budgets, unless the
// card still holds channels of it.
func (g *Guest) leaveQuarantine() {
	if g.channels.Left() > 0 {
		return
	}
	g.agg.gate.Forgive(roomGuest{g})
	g.state.Quarantined = ""
	g.quarantined.Store(false)
	g.state.Errors = shadow.Bucket{}
}
