package soft

import (
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Accounting by channel. The time of a step is charged to the engine that it called;
// steps and parts of them that call none (decoding, host methods) are charged to the
// previous engine. Waiting for an engine that serves another channel is not charged.

var (
	_ card.Meter              = (*Card)(nil)
	_ card.Registers          = (*Card)(nil)
	_ card.Relocator          = (*Card)(nil)
	_ card.Quiescer           = (*Card)(nil)
	_ [gf100.Engines]struct{} = [card.Engines]struct{}{}
)

// use is a channel's account. The atomic fields are written by the PBDMA that runs
// it, the others are its own.
type use struct {
	busy    [gf100.Engines]atomic.Int64 // ns
	ended   atomic.Uint64
	fetched uint64
	engine  uint8 // that the time now counts for
}

// underway reports whether the entry that was fetched last has not ended.
func (x *exec) underway() bool {
	return x.seg.words != 0 || x.pending >= 0 || x.held.valid || x.host.acquire.pending
}

// resumed counts the unfinished entry of a channel that was unbound.
func (ch *channel) resumed() {
	if ch.underway() {
		ch.use.fetched = 1
	}
}

// startClock begins a stretch of work.
func (x *run) startClock() { x.since = time.Now() }

// stopClock writes a stretch of work down, and begins the next.
func (x *run) stopClock() {
	now := time.Now()
	x.use.busy[x.use.engine].Add(int64(now.Sub(x.since)))
	x.since = now
}

// serves has the time from now on count for engine e.
func (x *run) serves(e uint8) {
	if x.use.engine != e {
		x.stopClock()
		x.use.engine = e
	}
}

// account ends a step's account.
func (x *run) account() {
	x.stopClock()
	ended := x.use.fetched
	if ended > 0 && x.underway() {
		ended--
	}
	x.use.ended.Store(ended)
}

// Use implements card.Meter.
func (c *Card) Use(id uint8) (u card.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(id) % gf100.Channels
	ch := c.fifo.slots[i].ch
	if ch == nil {
		return card.Use{Barred: true}
	}
	u.Ended = ch.use.ended.Load()
	for e := range u.Busy {
		u.Busy[e] = time.Duration(ch.use.busy[e].Load())
	}
	may := c.fifo.mayRun(i)
	switch ch.state {
	case stateRunning:
		u.Running = true
		return u
	case stateIdle, stateReady:
		u.Idle = may && ch.state == stateIdle
		u.Barred = !may
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

func (f *fifo) changed() {
	if f.card.useChanged != nil {
		f.card.useChanged()
	}
}
