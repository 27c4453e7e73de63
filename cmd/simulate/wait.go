package simulate

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// What a person who waits is told, and what nobody would wait for.

// quietly is for how long nothing is said, at first and between.
const quietly = 3 * time.Second

// wait tells how far a plan is.
type wait struct {
	plan        *Plan
	now         func() time.Time
	name        string
	began, told time.Time
}

func newWait(p *Plan) *wait { return &wait{plan: p, now: time.Now} }

// begin is that of a variant.
func (w *wait) begin(name string) {
	w.name, w.began = name, w.now()
	if w.told.IsZero() {
		w.told = w.began
	}
}

// tell is that so much card time is simulated.
func (w *wait) tell(at time.Duration) {
	now := w.now()
	if w.plan.Progress == nil || now.Sub(w.told) < quietly {
		return
	}
	w.told = now
	if w.plan.Sweep != nil {
		w.plan.Progress(fmt.Sprintf("%s: %s of card time", w.name, brief(at)))
		return
	}
	left := time.Duration(float64(now.Sub(w.began)) * float64(w.plan.Duration-at) / float64(at))
	w.plan.Progress(fmt.Sprintf("%s: %s of %s of card time, about %v left with this policy", w.name, brief(at), w.plan.Duration, left.Round(time.Second)))
}

// maxRequests bounds what is simulated with each policy: each request's latency is kept.
const maxRequests = 20_000_000

// maxSwept bounds what all runs of a sweep may come to. What it is in fact is known when each
// program is done, which is most often a hundredth of that.
const maxSwept = 400_000_000

// fitSweep refuses a sweep whose product nobody would wait for.
func (p *Plan) fitSweep() error {
	if p.Sweep == nil {
		return nil
	}
	n := 0.0
	for _, m := range p.mixes() {
		n += requests(&m, p.Duration)
	}
	if n *= float64(len(p.Variants)); n <= maxSwept {
		return nil
	}
	return &config.Error{Where: "--duration", Value: p.Duration.String(), Reason: fmt.Sprintf(
		"%d points of the sweep, each with %d policies, are %d runs of so much card time at most, which may come to %.0f million requests; at most %d million: give each %v or less, or name fewer policies (--policy)",
		len(p.Sweep.At), len(p.Variants), len(p.Sweep.At)*len(p.Variants), n/1e6, maxSwept/1_000_000, time.Duration(float64(p.Duration)*maxSwept/n).Truncate(time.Second))}
}

// requests is how many a mix may come to in some card time, at most: the processes with
// the shortest have the card first, each as often as it can ask.
func requests(m *model.Mix, d time.Duration) float64 {
	type kind struct{ most, length float64 }
	var engines [model.Engines][]kind
	var collect func(list []model.Node, times float64)
	collect = func(list []model.Node, times float64) {
		for i := range list {
			n := &list[i]
			count := times * float64(max(n.Count, 1))
			if n.Load == nil {
				collect(n.Nodes, count)
				continue
			}
			l := *n.Load
			if l.Check("") != nil {
				continue // it is refused elsewhere
			}
			for e, length := range [model.Engines]time.Duration{mean(&l), l.CopyBusy} {
				part := float64(l.Copies) / 1000
				if e == model.Graphics {
					part = 1 - part
				}
				if part <= 0 {
					continue
				}
				until := d
				if l.Stop > 0 {
					until = min(until, l.Stop)
				}
				// A burst takes its pause at least, of as many as may be unfinished.
				k := kind{most: float64(until) / float64(length), length: float64(length)}
				if l.Think > 0 {
					k.most = min(k.most, part*float64(l.Burst*l.Ahead)*(float64(until)/float64(l.Think)+1))
				}
				if l.Requests > 0 {
					k.most = min(k.most, part*float64(l.Requests))
				}
				k.most *= count
				engines[e] = append(engines[e], k)
			}
		}
	}
	collect(m.Guests, 1)
	all := 0.0
	for _, kinds := range engines {
		left := float64(d)
		for len(kinds) > 0 && left > 0 {
			least := 0
			for i := range kinds {
				if kinds[i].length < kinds[least].length {
					least = i
				}
			}
			n := min(kinds[least].most, left/kinds[least].length)
			all, left = all+n, left-n*kinds[least].length
			kinds = append(kinds[:least], kinds[least+1:]...)
		}
	}
	return all
}

// mean is the length of a graphics request.
func mean(l *throttle.Load) time.Duration {
	d := l.Busy
	if l.BusyMost > 0 {
		d = (l.Busy + l.BusyMost) / 2
	}
	if l.Alone > 0 {
		d = min(d, l.Alone)
	}
	return d
}
