package aggregator

import "time"

// Safe mode is where a guest goes that the card cannot do with: one whose
// channels it does not give back, or that stops its engines again and again. All
// its channels end. What it asks for afterwards changes its own registers and
// its own memory and is done at once, as far as it can see; nothing of it
// reaches the card. A reset ends safe mode.

// SafeMode returns why the guest is in safe mode, "" if it is not.
func (g *Guest) QuarantineReason() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quarantineReason
}

func (g *Guest) quarantine(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quarantineLocked(why)
}

// enterSafeLocked stops the guest's channels at once; its goroutine ends them.
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
			g.agg.ctl.disable(ch.id)
			g.pending.bind.add(uint8(id))
		}
	}
	g.wake.Broadcast()
}

// leaveSafe is part of a reset: the guest starts with nothing against it, unless
// the card still has channels of it.
func (g *Guest) leaveQuarantine() {
	if len(g.stuckChannels) > 0 || len(g.waiting) > 0 {
		return
	}
	if g.agg.gate != nil {
		g.agg.gate.forgive(g)
	}
	g.quarantineReason = ""
	g.quarantined.Store(false)
	g.errorBudget = errorBudget{}
}

// strikes is a bucket that leaks: errors fill it, time empties it.
type errorBudget struct {
	level float64
	at    time.Time
}

// hit counts one error and reports whether there were too many.
func (s *errorBudget) hit(now time.Time, burst, rate float64) bool {
	s.level = max(0, s.level-rate*now.Sub(s.at).Seconds()) + 1
	s.at = now
	return s.level > burst
}
