package gf100

import (
	"time"

	"github.com/umbra-gpu/umbra/mmio"
)

// Timer is what an [Alarm] sets: a *time.Timer whose function takes the owner's lock and
// calls [Alarm.Fired], or a fake of a test.
type Timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// Alarm keeps a timer at PTIMER's next alarm. Like a Face it is guarded by its
// owner's lock.
type Alarm struct {
	timer  Timer
	at     uint64 // when the timer fires, 0 if it is not set
	closed bool
}

// Init takes a timer, and stops it.
func (a *Alarm) Init(t Timer) {
	a.timer = t
	t.Stop()
}

// Follow sets the timer to f's next alarm, if that is another than before.
func (a *Alarm) Follow(f *Face) {
	at, armed := f.NextAlarm()
	if !armed {
		at = 0
	}
	if at == a.at || a.closed {
		return
	}
	a.at = at
	if !armed {
		a.timer.Stop()
		return
	}
	var wait time.Duration
	if now := f.timer.clock(); at > now {
		wait = time.Duration(at - now)
	}
	a.timer.Reset(wait)
}

// Fired notes that the timer went off. It returns false once the alarm is closed.
func (a *Alarm) Fired() bool {
	a.at = 0
	return !a.closed
}

// Close stops the timer for good.
func (a *Alarm) Close() {
	a.closed = true
	a.timer.Stop()
}

// Pin is the host's view of a function's interrupt. Like a Face it is guarded by its
// owner's lock.
type Pin struct{ reported mmio.Line }

// Settle recomputes the interrupt tree, with PFIFO's own level. It returns the line, and
// whether it differs from the one last reported.
func (p *Pin) Settle(f *Face, c *ConfigSpace, fifo bool) (l mmio.Line, changed bool) {
	f.tree.fifo = fifo
	l.Level, l.Edge = f.Settle()
	l.MSI, l.Disabled = c.MSIEnabled(), c.INTxDisabled()
	if !l.Edge && l == p.reported {
		return l, false
	}
	c.SetINTx(l.Level)
	p.reported = l
	p.reported.Edge = false
	return l, true
}

// Forget makes the next Settle report the line in full, for a new host.
func (p *Pin) Forget() { p.reported = mmio.Line{} }
