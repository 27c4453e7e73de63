package soft

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Accounting by channel. The time of a step is charged to the engine that it called; the rest of
// the time on a PBDMA (decoding, host methods, the time between steps) is charged to the previous
// engine.

var (
	_ card.Meter     = (*Card)(nil)
	_ card.Registers = (*Card)(nil)
	_ card.Relocator = (*Card)(nil)
)

// Account is the use that a channel made of the card since it was bound. Busy and Ended are
// guarded by Card.mu and complete after each step, the others belong to the PBDMA that runs it.
type Account struct {
	Busy    [gf100.Engines]int64 // ns
	Ended   uint64
	Fetched uint64
	Engine  uint8 // that the time now counts for
	Waits   bool  // for a semaphore, since its last step
}

// underway reports whether the entry that was fetched last has not ended.
func (x *Exec) underway() bool {
	return x.Seg.Words != 0 || x.Pending >= 0 || x.Held.Valid || x.Host.Acquire.Pending
}

// resumed counts the unfinished entry of a channel that was unbound.
func (ch *channel) resumed() {
	if ch.underway() {
		ch.Use.Fetched = 1
	}
}

// stopClock writes a stretch of work down, and begins the next.
func (x *run) stopClock() {
	now := x.card.clock()
	x.busy[x.Use.Engine] += int64(now - x.since)
	x.since = now
}

// serves has the time from now on count for engine e.
func (x *run) serves(e uint8) {
	if x.Use.Engine != e {
		x.stopClock()
		x.Use.Engine = e
	}
}

// account adds a step to the account. Card.mu is held. A channel that only looks at its semaphore
// again still waits.
func (ch *channel) account(s *step) {
	if waits := s.verdict == blocked; waits != ch.Use.Waits {
		ch.Use.Waits = waits
		ch.card.fifo.changed()
	}
	ch.charge(s)
	ended := ch.Use.Fetched
	if ended > 0 && ch.underway() {
		ended--
	}
	if ended != ch.Use.Ended && s.verdict == more { // otherwise giveBack tells
		ch.card.fifo.changed()
	}
	ch.Use.Ended = ended
}

// charge adds the time since the last call to the account. Card.mu is held.
func (ch *channel) charge(s *step) {
	for e, busy := range s.busy {
		ch.Use.Busy[e] += busy
	}
	s.busy = [gf100.Engines]int64{}
}

// Use implements card.Meter.
func (c *Card) Use(id uint32) (u card.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(id) % gf100.Channels
	ch := c.fifo.channels[i]
	if ch == nil {
		return card.Use{Barred: true}
	}
	u.Ended = ch.Use.Ended
	for i, e := range gf100.Executing {
		u.Busy[i] = time.Duration(ch.Use.Busy[e])
	}
	may := c.fifo.mayRun(i)
	switch ch.State {
	case stateRunning:
		u.Running, u.Barred = true, ch.Use.Waits
		return u
	case stateIdle, stateReady, stateContended:
		u.Idle = may && ch.State == stateIdle
		u.Barred = !may || ch.Use.Waits
	default:
		u.Barred = true
	}
	u.Underway = ch.underway()
	return u
}

// OnUse implements card.Meter.
func (c *Card) OnUse(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.useChanged = f
}

// changed tells who meters the card.
func (f *fifo) changed() {
	if f.card.useChanged != nil {
		f.card.useChanged()
	}
}
