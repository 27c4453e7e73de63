// Package throttle describes load: requests that keep a card busy for some time, pauses, bursts
// and copies. A [Source] draws the requests, the same for the same seed. The package has no clock.
package throttle

import (
	"math/rand/v2"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Load is the load of one process.
type Load struct {
	Busy     time.Duration `json:"busy" yaml:"busy" placeholder:"TIME" help:"Time for which a request keeps its engine busy, 1us to 1m."`
	BusyMost time.Duration `json:"busy_most,omitempty" yaml:"busy-most" placeholder:"TIME" help:"Longest request: lengths are drawn at random from busy to this. If omitted, all are as long as busy."`
	Think    time.Duration `json:"think,omitempty" yaml:"think" placeholder:"TIME" help:"Pause between the end of a burst and the next, up to 1h."`
	Burst    int           `json:"burst,omitempty" yaml:"burst" placeholder:"1 to 65536" help:"Requests that one doorbell adds."`
	Ahead    int           `json:"ahead,omitempty" yaml:"ahead" placeholder:"1 to 1024" help:"Bursts that may be unfinished at the same time."`
	Copies   int           `json:"copies,omitempty" yaml:"copies" placeholder:"0 to 1000" help:"Copies among 1000 requests."`
	CopyBusy time.Duration `json:"copy_busy,omitempty" yaml:"copy-busy" placeholder:"TIME" help:"Time for which a copy keeps the copy engine busy, 1us to 1m; as busy if omitted."`
	Requests int           `json:"requests,omitempty" yaml:"requests" placeholder:"0 to 1073741824" help:"Requests in all. 0: without end."`
	Start    time.Duration `json:"start,omitempty" yaml:"start" placeholder:"TIME" help:"When the process begins, up to 1h."`
	Stop     time.Duration `json:"stop,omitempty" yaml:"stop" placeholder:"TIME" help:"When it submits no more, up to 1h."`
	Life     time.Duration `json:"life,omitempty" yaml:"life" placeholder:"TIME" help:"Time after which the process ends and another takes its place, up to 1h."`
	Alone    time.Duration `json:"alone,omitempty" yaml:"alone" placeholder:"TIME" help:"Length of requests while it has the card to itself, up to 1m, as a cheat has them."`
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
	least := time.Duration(0)
	if l.BusyMost != 0 {
		least = l.Busy
	}
	return sched.First(
		sched.Within(at+"busy", l.Busy, time.Microsecond, time.Minute),
		sched.Within(at+"busy-most", l.BusyMost, least, time.Minute),
		sched.Within(at+"think", l.Think, 0, time.Hour),
		sched.Within(at+"copy-busy", l.CopyBusy, time.Microsecond, time.Minute),
		sched.Within(at+"start", l.Start, 0, time.Hour),
		sched.Within(at+"stop", l.Stop, 0, time.Hour),
		sched.Within(at+"life", l.Life, 0, time.Hour),
		sched.Within(at+"alone", l.Alone, 0, time.Minute),
		sched.Within(at+"burst", l.Burst, 1, 1<<16),
		sched.Within(at+"ahead", l.Ahead, 1, 1<<10),
		sched.Within(at+"copies", l.Copies, 0, 1000),
		sched.Within(at+"requests", l.Requests, 0, 1<<30),
	)
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
