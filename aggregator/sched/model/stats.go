package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Stats are of one client.
type Stats struct {
	Submitted int
	Done      int
	Aborted   int
	Busy      [Engines]time.Duration
	Last      time.Duration // when its last request ended

	// Of the graphics engine, while the client had work for it: its ideal time if all
	// clients with work share by priority, weight and cap, its real time, and the largest
	// difference.
	Ideal, Got time.Duration
	Lag        time.Duration
	Behind     time.Duration // now; below zero it is ahead

	refused   int
	latencies []time.Duration
	idealAt   time.Duration // when it last got work
	gotAt     time.Duration
}

func (s *Stats) note(latency time.Duration) { s.latencies = append(s.latencies, latency) }

// Latency returns a quantile of the times from doorbell to end.
func (s *Stats) Latency(q float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	slices.Sort(s.latencies)
	return s.latencies[min(len(s.latencies)-1, int(q*float64(len(s.latencies))))]
}

// Efficiency is the part of the time in which the graphics engine worked.
func (r *Rig) Efficiency() float64 {
	if r.Now == 0 {
		return 0
	}
	return float64(r.Card.Busy(Graphics)) / float64(r.Now)
}

// CheckLedger checks that entries of rings are neither lost nor doubled, and that each node has
// the sum of its present and former children.
func CheckLedger(entries []sched.Entry) error {
	for i, n := range entries {
		for e, a := range n.Accounts {
			if held := int64(n.Waiting[e] + n.Inflight[e]); n.Waiting[e] < 0 || n.Inflight[e] < 0 || a.Entries != a.Done+a.Dropped+held {
				return fmt.Errorf("%s, engine %d: %+v, and %d entries that are not done", n.Name, e, a, held)
			}
			if n.Kind != sched.Inner {
				continue
			}
			sum := n.Past[e]
			for _, c := range entries[i+1:] {
				if c.Depth <= n.Depth {
					break
				}
				if c.Depth == n.Depth+1 {
					sum.Add(&c.Accounts[e])
				}
			}
			a.Last, sum.Last = 0, 0 // the latest, not a sum
			if a != sum {
				return fmt.Errorf("%s, engine %d: %+v, and its children %+v", n.Name, e, a, sum)
			}
		}
	}
	return nil
}
