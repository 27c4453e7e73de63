// Package throttle describes load: requests that keep a card busy for some time, pauses, bursts
// and copies. A [Source] draws the requests, the same for the same seed, for the model card in
// virtual time and for guests of the tests. The package has no clock.
package throttle

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Load is the load of one process.
type Load struct {
	Busy     time.Duration `json:"busy" yaml:"busy" help:"how long a request keeps its engine busy"`
	BusyMost time.Duration `json:"busy_most,omitempty" yaml:"busy-most" help:"if longer, lengths are drawn from busy to this"`
	Think    time.Duration `json:"think,omitempty" yaml:"think" help:"pause between the end of a burst and the next"`
	Burst    int           `json:"burst,omitempty" yaml:"burst" help:"requests that one doorbell adds"`
	Ahead    int           `json:"ahead,omitempty" yaml:"ahead" help:"bursts that may be unfinished at the same time"`
	Copies   int           `json:"copies,omitempty" yaml:"copies" help:"copies among 1,000 requests"`
	CopyBusy time.Duration `json:"copy_busy,omitempty" yaml:"copy-busy" help:"how long a copy keeps the copy engine busy"`
	Requests int           `json:"requests,omitempty" yaml:"requests" help:"in all; without end if zero"`
	Start    time.Duration `json:"start,omitempty" yaml:"start" help:"when it begins"`
	Stop     time.Duration `json:"stop,omitempty" yaml:"stop" help:"when it submits no more"`
	Life     time.Duration `json:"life,omitempty" yaml:"life" help:"after so long the process ends and another takes its place"`
	Alone    time.Duration `json:"alone,omitempty" yaml:"alone" help:"length of requests while it has the card for itself, as a cheat does"`
}

// Defaults.
const (
	DefaultBurst = 1
	DefaultAhead = 2 // so that the next is there when one ends
)

// Check fills in defaults and checks bounds. Errors name the field, with at before it.
func (l *Load) Check(at string) error {
	if l.Burst == 0 {
		l.Burst = DefaultBurst
	}
	if l.Ahead == 0 {
		l.Ahead = DefaultAhead
		if l.Think > 0 {
			l.Ahead = 1 // a process that thinks between bursts waits for each
		}
	}
	if l.CopyBusy == 0 {
		l.CopyBusy = l.Busy
	}
	d := func(v time.Duration) string { return v.String() }
	for _, b := range []struct {
		field    string
		v        time.Duration
		min, max time.Duration
	}{
		{"busy", l.Busy, time.Microsecond, time.Minute},
		{"busy-most", l.BusyMost, 0, time.Minute},
		{"think", l.Think, 0, time.Hour},
		{"copy-busy", l.CopyBusy, time.Microsecond, time.Minute},
		{"start", l.Start, 0, time.Hour},
		{"stop", l.Stop, 0, time.Hour},
		{"life", l.Life, 0, time.Hour},
		{"alone", l.Alone, 0, time.Minute},
	} {
		if b.v < b.min || b.v > b.max {
			return &sched.Error{Field: at + b.field, Value: d(b.v), Reason: fmt.Sprintf("must be %v to %v", b.min, b.max)}
		}
	}
	for _, b := range []struct {
		field       string
		v, min, max int
	}{
		{"burst", l.Burst, 1, 1 << 16},
		{"ahead", l.Ahead, 1, 1 << 10},
		{"copies", l.Copies, 0, 1000},
		{"requests", l.Requests, 0, 1 << 30},
	} {
		if b.v < b.min || b.v > b.max {
			return &sched.Error{Field: at + b.field, Value: fmt.Sprint(b.v), Reason: fmt.Sprintf("must be %d to %d", b.min, b.max)}
		}
	}
	if l.BusyMost != 0 && l.BusyMost < l.Busy {
		return &sched.Error{Field: at + "busy-most", Value: d(l.BusyMost), Reason: fmt.Sprintf("must be busy (%v) or more", l.Busy)}
	}
	return nil
}

// Request is one that is drawn.
type Request struct {
	Busy time.Duration
	Copy bool
}

// Source draws requests.
type Source struct {
	load Load
	rng  *rand.Rand
	left int
}

// NewSource begins a load that was checked.
func NewSource(l Load, seed uint64) *Source {
	left := l.Requests
	if left == 0 {
		left = -1
	}
	return &Source{load: l, rng: rand.New(rand.NewPCG(seed, 0x7468726f74746c65)), left: left}
}

// Next draws the next request; false if there are no more.
func (s *Source) Next() (Request, bool) {
	if s.left == 0 {
		return Request{}, false
	}
	if s.left > 0 {
		s.left--
	}
	l := &s.load
	if l.Copies > 0 && s.rng.IntN(1000) < l.Copies {
		return Request{l.CopyBusy, true}, true
	}
	busy := l.Busy
	if l.BusyMost > busy {
		busy += time.Duration(s.rng.Int64N(int64(l.BusyMost - l.Busy + 1)))
	}
	return Request{Busy: busy}, true
}
