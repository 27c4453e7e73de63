package gf100

import "time"

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
