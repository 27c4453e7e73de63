// Package bench measures what serving a GPU costs: scenarios, with every set-up
// by turns in one run, in this process and in virtual machines.
//
// The parts: setup has the ways to serve a GPU, as rows; scene runs a case with
// each of them by turns; inside has the scenarios of this process, machine those
// of virtual machines; report is what was found, stats its arithmetic, page its
// picture. traps measures transports against each other.
//
// Run owns what it starts and has ended it all when it returns. The package has
// no locks, and starts no goroutines of its own.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// Options of a run.
type Options struct {
	Umbra     string   // version of this program, for the report
	Setups    []string // names; none are all that need not be named
	Only      []string // scenarios; none are all
	Repeat    int
	Quick     bool
	InProcess bool     // no virtual machines
	Machines  bool     // virtual machines only
	Boots     int      // of each virtual machine
	Kernels   []string // that are booted; none are the default one
	// Possible says why no machine can be booted from here; nil asks the lab.
	Possible func() error
	// Busy is the calibration of another report, so that both do the same work; 0
	// calibrates.
	Busy     uint64
	Progress io.Writer // lines for a person who waits
}

// traps is the measurement of single accesses.
const traps = report.Accesses

var ofTraps = report.Scenario{Name: traps, Title: "One access of each class", About: "How long it takes, and where the time goes"}

// Scenarios are the names of everything that can be measured.
func Scenarios() (names []string) {
	for i := range inside.Scenarios {
		names = append(names, inside.Scenarios[i].Name)
	}
	return append(names, traps)
}

// Run measures. What cannot be measured is in the report's errors; Run itself
// fails if nothing can be. If ctx ends it returns its error, and a report of what
// had been measured by then.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := o.CheckPlace(); err != nil { // a run is long: who waits for machines has to know now
		return nil, err
	}
	rows, err := setup.Choose(o.Setups)
	if err != nil {
		return nil, err
	}
	r := &run{Options: o, rows: rows, began: time.Now()}
	r.out = &report.Report{
		Schema: report.Schema, Version: report.Version, Umbra: o.Umbra, Began: r.began.UTC().Round(time.Second),
		Machine: report.ThisMachine(), Run: report.Run{Repeat: o.Repeat, Quick: o.Quick},
		Setups: listed(rows), Results: []report.Result{}, // traps alone have none, and a list is a list
	}
	if err := r.measure(ctx); err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		r.out.Errors = append(r.out.Errors, "the run was ended before it was done")
	}
	r.out.Bells = r.out.FindBells()
	r.out.Seconds = time.Since(r.began).Seconds()
	return r.out, ctx.Err()
}

func (r *run) measure(ctx context.Context) error {
	if r.Machines {
		r.nameScenarios()
	} else if err := r.inProcess(ctx); err != nil {
		return err
	}
	if r.InProcess {
		return nil
	}
	return r.inMachines(ctx)
}

// run is one run under way.
type run struct {
	Options
	rows  []setup.Row
	began time.Time
	out   *report.Report

	modelled []point // that the cost models are fitted to
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%5.0fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// failed notes what could not be measured, and goes on.
func (r *run) failed(what string, err error) {
	r.out.Errors = append(r.out.Errors, what+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	r.say("%s: not measured: %v", what, err)
}

// nameScenarios enters those of machines, which have the names of this process's.
func (r *run) nameScenarios() {
	for i := range inside.Scenarios {
		if s := &inside.Scenarios[i]; r.asked(s.Name) && slices.Contains(machine.Scenarios(), s.Name) {
			r.out.Scenarios = append(r.out.Scenarios, s.Scenario)
		}
	}
	if r.asked(traps) {
		r.out.Scenarios = append(r.out.Scenarios, ofTraps)
	}
}

func (r *run) inProcess(ctx context.Context) error {
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		if !r.asked(s.Name) {
			continue
		}
		r.out.Scenarios = append(r.out.Scenarios, s.Scenario)
		for _, c := range s.Cases(r.out.Run) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.say("%s: %s", s.Name, c.Name)
			results, err := scene.Turns(ctx, r.out.Run, s, &c, r.rows)
			if ctx.Err() != nil {
				return ctx.Err() // not a measurement's failure
			}
			if err != nil {
				r.failed(s.Name+", "+c.Name, err)
				continue
			}
			r.out.Results = append(r.out.Results, results...)
			if c.Modelled {
				r.modelled = append(r.modelled, points(results)...)
			}
		}
	}
	if r.asked(traps) {
		r.out.Scenarios = append(r.out.Scenarios, ofTraps)
		r.say("%s: one access of each class", traps)
		t, err := inside.Traps(ctx, r.out.Run, r.rows)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failed(traps, err)
		}
		r.out.Traps = t
	}
	r.model()
	return ctx.Err()
}

// model fits the cost models to what was measured.
func (r *run) model() {
	if len(r.modelled) == 0 {
		return
	}
	for _, m := range []struct {
		to    **report.Model
		terms []report.Term
	}{{&r.out.Model, measuredTerms}, {&r.out.Counted, countedTerms}} {
		var err error
		if *m.to, err = fit(r.modelled, m.terms); err != nil {
			r.failed("the cost model", err)
		}
	}
}

// calibrate finds how much work is a millisecond, if a scenario needs it.
func (r *run) calibrate(ctx context.Context) (err error) {
	if !slices.ContainsFunc(inside.Scenarios, func(s scene.Scenario) bool { return s.Busy && r.asked(s.Name) }) {
		return nil
	}
	if r.out.Run.BusyBytes = r.Busy; r.Busy != 0 {
		return nil
	}
	r.say("how much work is a millisecond?")
	r.out.Run.BusyBytes, err = inside.Calibrate(ctx)
	return err
}
