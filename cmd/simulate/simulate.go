// Package simulate shows how a card's time is shared: a mix of guests runs on the
// model card, in virtual time, under one policy or several in turn. The scheduler
// is the one that serves.
//
// A run is described by a preset, a file or flags, and reported as a table, as
// JSON and as a page with plots. The package has no locks and no goroutines.
package simulate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Schema and Version name the JSON.
const (
	Schema  = "umbra-sched-simulate"
	Version = 1
)

// Plan is what is simulated.
type Plan struct {
	Name     string
	About    string
	Mix      model.Mix
	Sweep    *Sweep // in place of one mix: what a program's runtime depends on
	Variants []Variant
	Duration time.Duration // of card time; of a run of a sweep at most
	Seed     uint64
	Progress func(string) // lines for a person who waits; nil for nobody
}

// Variant is one way to share the card.
type Variant struct {
	Name   string
	Config sched.Config
}

// Sweep is a mix that changes along an axis. Its first process is a program that
// ends: how long it takes is what is looked at.
type Sweep struct {
	Axis string
	At   []float64
	Mix  func(at float64) model.Mix
}

// mixes lists what is simulated with each variant.
func (p *Plan) mixes() []model.Mix {
	if p.Sweep == nil {
		return []model.Mix{p.Mix}
	}
	var out []model.Mix
	for _, at := range p.Sweep.At {
		out = append(out, p.Sweep.Mix(at))
	}
	return out
}

// Report is what came out.
type Report struct {
	Schema  string        `json:"schema"`
	Version int           `json:"version"`
	Name    string        `json:"name"`
	About   string        `json:"about,omitempty"`
	Card    time.Duration `json:"card_ns"` // time that was simulated, of each run; of a sweep's at most
	Seed    uint64        `json:"seed"`
	Mix     *model.Mix    `json:"mix,omitempty"`
	Axis    string        `json:"axis,omitempty"` // of a sweep
	At      []float64     `json:"at,omitempty"`
	Runs    []Run         `json:"runs"`
}

// Run is one variant's.
type Run struct {
	Name       string         `json:"name"`
	Config     sched.Config   `json:"config"`
	Clients    []Client       `json:"clients,omitempty"`
	NoIdeal    string         `json:"no_ideal,omitempty"` // why there is nothing to compare with
	ShareError *float64       `json:"share_error"`        // largest difference to the ideal, of one; null without an ideal
	Jain       *float64       `json:"jain"`
	Efficiency float64        `json:"efficiency"` // part of the time that the graphics engine worked
	Lag        *time.Duration `json:"lag_ns"`
	Counts     sched.Counts   `json:"counts"`
	Ledger     []sched.Entry  `json:"ledger,omitempty"`

	// Of a sweep.
	Runtimes []time.Duration `json:"runtimes_ns,omitempty"`
	Flatness float64         `json:"flatness,omitempty"` // longest less shortest, by the median
	Slope    float64         `json:"slope,omitempty"`    // of the runtime by its median, along the whole axis
}

// Client is one process.
type Client struct {
	Name     string          `json:"name"`
	Share    float64         `json:"share"`   // of the graphics engine's time that anybody had
	Ideal    *float64        `json:"ideal"`   // null without one
	Busy     []time.Duration `json:"busy_ns"` // by engine
	Lag      *time.Duration  `json:"lag_ns"`
	Done     int             `json:"done"`
	Aborted  int             `json:"aborted,omitempty"`
	Median   time.Duration   `json:"latency_p50_ns"`
	P99      time.Duration   `json:"latency_p99_ns"`
	Worst    time.Duration   `json:"latency_max_ns"`
	Finished time.Duration   `json:"finished_ns,omitempty"` // when a load that ends was done
	Shares   []float64       `json:"shares"`                // in each window
	Behind   []time.Duration `json:"behind_ns"`             // at the end of each
}

// windows is how many parts a run is looked at in.
const windows = 80

// Simulate runs a plan until it is done or ctx ends.
func Simulate(ctx context.Context, p *Plan) (*Report, error) {
	r := &Report{Schema: Schema, Version: Version, Name: p.Name, About: p.About, Card: p.Duration, Seed: p.Seed}
	if p.Sweep != nil {
		r.Axis, r.At = p.Sweep.Axis, p.Sweep.At
	} else {
		r.Mix = &p.Mix
	}
	w := newWait(p)
	for _, v := range p.Variants {
		w.begin(v.Name)
		run := Run{Name: v.Name, Config: v.Config}
		simulate := p.mix
		if p.Sweep != nil {
			simulate = p.sweep
		}
		if err := simulate(ctx, w, &run); err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, run)
	}
	return r, nil
}

func (p *Plan) mix(ctx context.Context, wait *wait, run *Run) error {
	rig, err := model.NewRig(run.Config, p.Mix, p.Seed)
	if err != nil {
		return err
	}
	run.Clients = make([]Client, len(rig.Clients))
	before := make([]time.Duration, len(rig.Clients))
	for w := range windows {
		end := p.Duration * time.Duration(w+1) / windows
		for at := rig.Now; at < end; { // in steps, so that it can be ended
			at = min(at+stride, end)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := rig.Run(at); err != nil {
				return err
			}
			wait.tell(at)
		}
		total := time.Duration(0)
		for i, k := range rig.Clients {
			total += k.Stats.Got - before[i]
		}
		for i, k := range rig.Clients {
			share := 0.0
			if total > 0 {
				share = float64(k.Stats.Got-before[i]) / float64(total)
			}
			before[i] = k.Stats.Got
			run.Clients[i].Shares = append(run.Clients[i].Shares, share)
			{
				run.Clients[i].Behind = append(run.Clients[i].Behind, k.Stats.Behind)
			}
		}
	}
	total := time.Duration(0)
	for _, k := range rig.Clients {
		total += k.Stats.Got
	}
	for i, k := range rig.Clients {
		c, st := &run.Clients[i], &k.Stats
		c.Name, c.Share, c.Busy = k.Name, rig.Share(k), st.Busy[:]
		{
			ideal := 0.0
			if total > 0 {
				ideal = float64(st.Owed) / float64(total)
			}
			c.Ideal, c.Lag = &ideal, &st.Lag
		}
		c.Done, c.Aborted = st.Done, st.Aborted
		c.Median, c.P99, c.Worst = st.Latency(0.5), st.Latency(0.99), st.Latency(1)
		if k.Finished() {
			c.Finished = st.Last
		}
	}
	run.compare(rig, rig.Clients...)
	run.Counts, run.Ledger = rig.Sched.Counted(), rig.Sched.Ledger(rig.Now)
	return nil
}

func (p *Plan) sweep(ctx context.Context, wait *wait, run *Run) error {
	for _, at := range p.Sweep.At {
		rig, err := model.NewRig(run.Config, p.Sweep.Mix(at), p.Seed)
		if err != nil {
			return err
		}
		program := rig.Clients[0]
		for until := time.Duration(0); !program.Finished() && until < p.Duration; {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			until = min(until+max(stride, until/4), p.Duration)
			if err := rig.Run(until); err != nil {
				return err
			}
		}
		if !program.Finished() { // it has no runtime
			return &config.Error{Where: "--duration", Value: p.Duration.String(), Reason: fmt.Sprintf(
				"the program is not done in so much card time with %s where %s is %g; give it more, or leave that policy out (--policy)", run.Name, p.Sweep.Axis, at)}
		}
		run.Runtimes = append(run.Runtimes, program.Stats.Last)
		wait.tell(rig.Now)
		run.compare(rig, program)
	}
	sorted := slices.Sorted(slices.Values(run.Runtimes))
	median := float64(sorted[len(sorted)/2])
	run.Flatness = float64(sorted[len(sorted)-1]-sorted[0]) / median
	run.Slope = slope(p.Sweep.At, run.Runtimes, median)
	return nil
}

// stride is how much card time goes by between looks whether to go on.
const stride = 100 * time.Millisecond

// compare holds a rig against the ideal, if there is one: the worst of all rigs, and the
// lag of some clients.
func (x *Run) compare(rig *model.Rig, clients ...*model.Client) {
	x.Efficiency = rig.Efficiency()
	wrong, jain, lag := rig.ShareError(), rig.Jain(), time.Duration(0)
	if x.ShareError != nil {
		wrong, lag = max(wrong, *x.ShareError), *x.Lag
	}
	for _, k := range clients {
		lag = max(lag, k.Stats.Lag)
	}
	x.ShareError, x.Jain, x.Lag = &wrong, &jain, &lag
}

// slope is that of the line of least squares, over the whole axis.
func slope(at []float64, d []time.Duration, median float64) float64 {
	n := float64(len(at))
	var x, y, xx, xy float64
	for i := range at {
		v := float64(d[i]) / median
		x, y, xx, xy = x+at[i], y+v, xx+at[i]*at[i], xy+at[i]*v
	}
	if q := n*xx - x*x; math.Abs(q) > 0 {
		return (n*xy - x*y) / q * (slices.Max(at) - slices.Min(at))
	}
	return 0
}
