package sched

import "time"

// Meter turns the times at which requests came to the card and ended into the
// time that the card worked for them. An engine does one thing at a time, so a
// request began when it came, or when the one before it ended. The end is when
// its semaphore was released or the card said so; a fetch pointer runs ahead.
type Meter struct {
	Ends      [MaxEngines]time.Duration
	Backwards uint64 // ends before the one before, or before the beginning
}

// Busy returns how long an engine worked for a request.
func (m *Meter) Busy(engine int, came, ended time.Duration) time.Duration {
	if engine < 0 || engine >= MaxEngines {
		return 0
	}
	began := max(came, m.Ends[engine])
	if ended < began {
		m.Backwards++
		return 0
	}
	m.Ends[engine] = ended
	return ended - began
}
