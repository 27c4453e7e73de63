package serve

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// CardTime is what a virtual GPU had of the card's time, all engines together.
type CardTime struct {
	Weight   int             `json:"weight"`
	Busy     time.Duration   `json:"busy_ns"`  // the card worked for it
	Wait     time.Duration   `json:"wait_ns"`  // its entries waited, each for itself
	Requests int64           `json:"requests"` // doorbells
	Held     int64           `json:"held"`     // entries that were not forwarded at once
	Done     int64           `json:"done"`     // entries
	Waiting  int             `json:"waiting"`  // entries, now
	OnCard   int             `json:"on_card"`  // entries, now
	Engines  []sched.Account `json:"engines"`
}

func cardTimeOf(e *sched.Entry) CardTime {
	t := CardTime{Weight: e.Weight, Engines: e.Accounts}
	for i := range e.Accounts {
		a := &e.Accounts[i]
		t.Busy += a.Busy
		t.Wait += a.Wait
		t.Requests += a.Requests
		t.Held += a.Held
		t.Done += a.Done
		t.Waiting += e.Waiting[i]
		t.OnCard += e.Inflight[i]
	}
	return t
}

// guestDepth is where the scheduler's tree has the guests.
const guestDepth = 1

// CardTimes says what each virtual GPU had of the card's time, by name. It is nil
// without a scheduler.
func (s *Shared) CardTimes() map[string]CardTime {
	if _, ok := s.agg.Schedule(); !ok {
		return nil
	}
	ledger := s.agg.Ledger()
	out := make(map[string]CardTime)
	for i := range ledger {
		e := &ledger[i]
		if e.Depth != guestDepth {
			continue
		}
		out[e.Name] = cardTimeOf(e)
	}
	return out
}

// Schedule is how the card's time is shared, and how often what should not happen
// did; nil without a scheduler.
func (s *Shared) Schedule() (*sched.Config, *sched.Counts) {
	c, ok := s.agg.Schedule()
	if !ok {
		return nil, nil
	}
	n := s.agg.ScheduleCounts()
	return &c, &n
}

// SetSchedule changes how the card's time is shared, while it is. Without a scheduler
// it fails with aggregator.ErrNoScheduler.
func (s *Shared) SetSchedule(c sched.Config) error { return s.agg.SetSchedule(c) }

// TimeShare is a GPU's part of the card's time, and how its guest's processes share it.
type TimeShare struct {
	Node      sched.NodeConfig
	Processes aggregator.Processes
	// Kept are weights of processes that their policy makes no use of, as it is.
	Kept map[string]int
}

// SetCardTime changes the GPU's part of the card's time. Without a scheduler it
// fails with aggregator.ErrNoScheduler.
func (v *VirtualEndpoint) SetCardTime(t TimeShare) error {
	v.timeMu.Lock()
	defer v.timeMu.Unlock()
	if err := v.guest.SetShare(t.Node); err != nil {
		return err
	}
	v.time.Node = t.Node
	if err := v.guest.SetProcesses(t.Processes); err != nil {
		return err
	}
	v.time.Processes, v.time.Kept = t.Processes, t.Kept
	return nil
}

// CardTime is what it is now.
func (v *VirtualEndpoint) CardTime() TimeShare {
	v.timeMu.Lock()
	defer v.timeMu.Unlock()
	return v.time
}
