// Package simulate runs a mix of guests on the model card, in virtual time, under one policy
// after the other. The scheduler is the one that umbra serve uses.
//
// A preset, a file or flags describe a plan. The report is JSON. The package has no
// goroutines.
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
	Version = 3
)

// Header is what a file, a plan and its report say of themselves. In a sweep a mix changes by one
// parameter: its first process is a program that ends, and the sweep measures how long that takes.
type Header struct {
	Name     string        `yaml:"name" json:"name"`
	About    string        `yaml:"about" json:"about,omitempty"`
	Duration time.Duration `yaml:"duration" json:"card_ns"` // simulated time of each run; of a sweep: at most
	Seed     uint64        `yaml:"seed" json:"seed"`
	Axis     string        `yaml:"axis" json:"axis,omitempty"` // of a sweep
	At       []float64     `yaml:"at" json:"at,omitempty"`     // what $at in the text stands for
}

// Plan is what to simulate.
type Plan struct {
	Header
	Mixes    []model.Mix // one, or of a sweep one for each of At
	Configs  []sched.Config
	Progress func(string) // gets a line every few seconds; nil for none
}

// Report is the result of a plan.
type Report struct {
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	Header
	Mix  *model.Mix `json:"mix,omitempty"` // of a sweep none
	Runs []Run      `json:"runs"`
}

// Run is the result of one policy.
type Run struct {
	Policy     string          `json:"policy"`
	Config     sched.Config    `json:"config"`
	Clients    []Client        `json:"clients,omitempty"`
	ShareError float64         `json:"share_error"` // largest difference of a client's share from its fair share
	Jain       float64         `json:"jain"`        // Jain's index of shares over fair shares
	Efficiency float64         `json:"efficiency"`  // part of the time that the graphics engine worked
	Lag        time.Duration   `json:"lag_ns"`
	Counts     sched.Counts    `json:"counts"`
	Ledger     []sched.Entry   `json:"ledger,omitempty"`
	Runtimes   []time.Duration `json:"runtimes_ns,omitempty"` // of a sweep
	Flatness   float64         `json:"flatness,omitempty"`    // longest runtime less the shortest, by the median
}

// Client is the result of one process.
type Client struct {
	Name     string          `json:"name"`
	Share    float64         `json:"share"`   // of the graphics engine's time
	Fair     float64         `json:"fair"`    // what the same load has on a card that can be divided at will
	Busy     []time.Duration `json:"busy_ns"` // by engine
	Lag      time.Duration   `json:"lag_ns"`  // most that it was behind or ahead of such a card while it had work
	Done     int             `json:"done"`
	Aborted  int             `json:"aborted,omitempty"`
	Median   time.Duration   `json:"latency_p50_ns"` // from doorbell to end
	P99      time.Duration   `json:"latency_p99_ns"`
	Worst    time.Duration   `json:"latency_max_ns"`
	Finished time.Duration   `json:"finished_ns,omitempty"` // when a load that ends had ended
	Shares   []float64       `json:"shares"`                // in each of the windows of the run
}

const (
	windows = 80 // of a run
	// maxRequests bounds a run: the latency of each request is kept.
	maxRequests = 20_000_000
	quiet       = 3 * time.Second // between two lines of progress
	step        = 100 * time.Millisecond
)

// simulation is a plan under way.
type simulation struct {
	*Plan
	ctx      context.Context
	reported time.Time
}

// Simulate runs a plan until it is done or ctx ends.
func Simulate(ctx context.Context, p *Plan) (*Report, error) {
	r := &Report{Schema: Schema, Version: Version, Header: p.Header}
	s := &simulation{p, ctx, time.Now()}
	do := s.sweep
	if p.At == nil {
		r.Mix, do = &p.Mixes[0], s.mix
	}
	for _, c := range p.Configs {
		run := Run{Policy: c.Policy.String(), Config: c}
		if err := do(&run); err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, run)
	}
	return r, nil
}

// advance lets a rig's time come to until.
func (s *simulation) advance(rig *model.Rig, until time.Duration) error {
	for rig.Now < until {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if err := rig.Run(min(rig.Now+step, until)); err != nil {
			return err
		}
		done := 0
		for _, k := range rig.Clients {
			done += k.Stats.Done
		}
		if done > maxRequests {
			return &config.Error{Where: "--duration", Value: s.Duration.String(), Reason: fmt.Sprintf(
				"%d million requests were done after %v with %v; simulate less time, or longer requests", maxRequests/1_000_000, rig.Now.Round(time.Millisecond), rig.Sched.Config.Policy)}
		}
		if now := time.Now(); s.Progress != nil && now.Sub(s.reported) >= quiet {
			s.reported = now
			s.Progress(fmt.Sprintf("%v: %v of %v of card time", rig.Sched.Config.Policy, rig.Now.Round(time.Millisecond), s.Duration))
		}
	}
	return nil
}

func (s *simulation) mix(run *Run) error {
	rig, err := model.NewRig(run.Config, s.Mixes[0], s.Seed)
	if err != nil {
		return err
	}
	fair := rig.Fair(s.Duration)
	run.Clients = make([]Client, len(rig.Clients))
	before := make([]time.Duration, len(rig.Clients))
	for w := range windows {
		from := rig.Now
		if err := s.advance(rig, s.Duration*time.Duration(w+1)/windows); err != nil {
			return err
		}
		for i, k := range rig.Clients {
			run.Clients[i].Shares = append(run.Clients[i].Shares, float64(k.Stats.Got-before[i])/float64(rig.Now-from))
			before[i] = k.Stats.Got
		}
	}
	sum, squares, n := 0.0, 0.0, 0.0
	for i, k := range rig.Clients {
		c, st := &run.Clients[i], &k.Stats
		c.Name, c.Busy, c.Lag, c.Done, c.Aborted = k.Name, st.Busy[:], st.Lag, st.Done, st.Aborted
		c.Share, c.Fair = float64(st.Got)/float64(s.Duration), float64(fair[i])/float64(s.Duration)
		c.Median, c.P99, c.Worst = st.Latency(0.5), st.Latency(0.99), st.Latency(1)
		if k.Finished() {
			c.Finished = st.Last
		}
		run.Lag = max(run.Lag, c.Lag)
		run.ShareError = max(run.ShareError, math.Abs(c.Share-c.Fair))
		if fair[i] > 0 {
			x := c.Share / c.Fair
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	if run.Jain = 1; squares > 0 {
		run.Jain = sum * sum / (n * squares)
	}
	run.Efficiency = rig.Efficiency()
	run.Counts, run.Ledger = rig.Sched.Counts, rig.Sched.Ledger(rig.Now)
	return nil
}

func (s *simulation) sweep(run *Run) error {
	for i, at := range s.At {
		rig, err := model.NewRig(run.Config, s.Mixes[i], s.Seed)
		if err != nil {
			return err
		}
		program := rig.Clients[0]
		for !program.Finished() {
			if rig.Now >= s.Duration {
				return &config.Error{Where: "--duration", Value: s.Duration.String(), Reason: fmt.Sprintf(
					"the program had not ended with %s where the %s is %g; give it more, or leave that policy out (--policy)", run.Policy, s.Axis, at)}
			}
			if err := s.advance(rig, rig.Now+step); err != nil {
				return err
			}
		}
		run.Runtimes = append(run.Runtimes, program.Stats.Last)
		run.Efficiency = rig.Efficiency()
		run.Lag = max(run.Lag, program.Stats.Lag)
	}
	sorted := slices.Sorted(slices.Values(run.Runtimes))
	median := float64(sorted[len(sorted)/2])
	run.Flatness = float64(sorted[len(sorted)-1]-sorted[0]) / median
	return nil
}
