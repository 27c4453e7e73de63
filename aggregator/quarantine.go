package aggregator

// A guest is quarantined when the card cannot work for it: the card does not give its
// channels back, or the guest stops the engines again and again. All its channels end.
// Later requests change only its own registers and memory, and complete immediately as
// far as the guest can see; none reaches the card. A reset ends the quarantine.

// QuarantineReason returns why the guest is quarantined, "" if it is not.
func (g *Guest) QuarantineReason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quarantineReason
}

// Quarantine stops the guest's channels until a reset.
func (g *Guest) Quarantine(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quarantineLocked(why)
}

// quarantineLocked stops the guest's channels immediately; its worker closes them.
func (g *Guest) quarantineLocked(why string) {
	if g.quarantineReason != "" {
		return
	}
	g.quarantineReason = why
	g.quarantined.Store(true)
	g.stats.Quarantines.Add(1)
	for id := range g.channels {
		if ch := g.channels[id].ch; ch != nil {
			ch.stopped = true
			ch.hw.Disable()
			g.pending.bind.add(uint8(id))
		}
	}
	g.wake.Broadcast()
}

// leaveQuarantine is part of a reset. The guest starts with empty budgets, unless the
// card still holds channels of it.
func (g *Guest) leaveQuarantine() {
	if len(g.stuckChannels) > 0 || len(g.waiting) > 0 {
		return
	}
	g.agg.gate.Forgive(g)
	g.quarantineReason = ""
	g.quarantined.Store(false)
	g.errorBudget = leakyBucket{}
}
