package aggregator

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/budget"
)

// A guest is quarantined when the card cannot work for it: the card does not give its
// channels back, or the guest stops the engines again and again. All its channels end.
// Later requests change only its own registers and memory, and complete immediately as
// far as the guest can see; none reaches the card. A reset ends the quarantine.

// quarantine is whether a guest is quarantined. Guest.mu guards it.
type quarantine struct {
	reason string        // "" if the guest is not
	on     atomic.Bool   // reason is set; read without the lock
	errors budget.Bucket // at which the card stopped channels
}

// QuarantineReason returns why the guest is quarantined, "" if it is not.
func (g *Guest) QuarantineReason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quarantine.reason
}

// Quarantine stops the guest's channels until a reset.
func (g *Guest) Quarantine(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quarantineLocked(why)
}

// quarantineLocked stops the guest's channels immediately; its worker closes them.
func (g *Guest) quarantineLocked(why string) {
	if g.quarantine.reason != "" {
		return
	}
	g.quarantine.reason = why
	g.quarantine.on.Store(true)
	g.stats.Quarantines.Add(1)
	for id := range g.channels.Table {
		if ch := g.channels.Table[id].Channel; ch != nil {
			ch.Halt()
			g.rebindSoon(uint8(id))
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
	g.quarantine.reason = ""
	g.quarantine.on.Store(false)
	g.quarantine.errors = budget.Bucket{}
}
