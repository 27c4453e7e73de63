// Package scene says what a scenario is, and runs one: its cases with every
// set-up by turns, so that what the machine does besides hits all set-ups alike.
//
// The package owns nothing between two calls; it starts no goroutines and has no
// locks. A Take belongs to the goroutine that runs the case.
package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// Scenario is something to measure in this process.
type Scenario struct {
	report.Scenario
	// Busy says that its cases have busy work, of which the run has to know how much is a
	// millisecond.
	Busy bool
	// Cases of the scenario with the parameters of a run.
	Cases func(run report.Run) []Case
}

// Case is one point of a scenario.
type Case struct {
	Name       string
	Parameters map[string]string
	Shape      setup.Shape
	// Virtual says that the case makes no sense with the whole card.
	Virtual bool
	// For says which set-ups it tells something of; nil are all.
	For func(row *setup.Row) bool
	// Modelled says that its engines do next to nothing, so that the
	// cost model may be fitted to its phases.
	Modelled bool
	// Prepare makes what all turns with one bed use, and is not measured; nil
	// makes nothing.
	Prepare func(ctx context.Context, b *setup.Bed) (io.Closer, error)
	// Run does the case once.
	Run func(ctx context.Context, t *Take) error
}

// Takes tells whether the case is measured with a set-up.
func (c *Case) Takes(row *setup.Row) bool {
	return !(row.Whole && c.Virtual) && (c.For == nil || c.For(row))
}

// Take is one repetition of a case with one set-up.
type Take struct {
	Bed   *setup.Bed
	State io.Closer // of Prepare
	Run   report.Run

	sample report.Sample
}

// Phase measures do: its time, and what happened meanwhile. What do has started
// must have ended when it returns.
func (t *Take) Phase(name string, do func() error) error {
	before := t.Bed.Counts()
	at := time.Now()
	err := do()
	took := time.Since(at)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	counts := t.Bed.Counts()
	for k, v := range before {
		counts[k] -= v
	}
	t.sample.Phases = append(t.sample.Phases, report.PhaseSample{Name: name, NS: float64(took), Counts: counts})
	return nil
}

// Idle measures what processor time this process uses for so long in which nobody has
// anything to do, as a share of one processor.
func (t *Take) Idle(ctx context.Context, d time.Duration) (share float64, err error) {
	var used time.Duration
	err = t.Phase("idle", func() error {
		before, err := processorTime()
		if err != nil {
			return err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
		used, err = processorTime()
		used -= before
		return err
	})
	if err != nil {
		return 0, err
	}
	return float64(used) / t.Last().NS, nil
}

func processorTime() (time.Duration, error) {
	var r unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), err
}

// ServerTime measures what processor time this process uses while do runs; not counted is
// that of the thread that do runs on, which is the guest's. In a virtual machine do only
// waits.
func (t *Take) ServerTime(name string, do func() error) (used time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = t.Phase(name, func() error {
		before, err := serverTime()
		if err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		used, err = serverTime()
		used -= before
		return err
	})
	return used, err
}

func serverTime() (time.Duration, error) {
	var all, own unix.Timespec
	err := errors.Join(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &all), unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &own))
	return time.Duration(all.Nano() - own.Nano()), err
}

// Figure enters something else that was measured.
func (t *Take) Figure(name string, unit report.Unit, value float64) {
	t.sample.Figures = append(t.sample.Figures, report.FigureSample{Name: name, Unit: unit, Value: value})
}

// Last returns the phase that was measured last.
func (t *Take) Last() report.PhaseSample { return t.sample.Phases[len(t.sample.Phases)-1] }

// Sample returns what was measured.
func (t *Take) Sample() report.Sample { return t.sample }

// Seat is the first GPU of the bed.
func (t *Take) Seat() *setup.Seat { return t.Bed.Seats[0] }

// place is a bed with what was prepared on it.
type place struct {
	row     setup.Row
	bed     *setup.Bed
	state   io.Closer
	samples []report.Sample
}

func (p *place) close() error {
	var errs []error
	if p.state != nil {
		errs = append(errs, p.state.Close())
	}
	if p.bed != nil {
		errs = append(errs, p.bed.Close())
	}
	return errors.Join(errs...)
}

// Turns runs a case with each set-up by turns. The set-ups begin each round one
// further on, so that none is always the one behind the slowest. It returns one
// result for each set-up.
func Turns(ctx context.Context, run report.Run, s *Scenario, c *Case, rows []setup.Row) (results []report.Result, err error) {
	var places []*place
	defer func() {
		for _, p := range places {
			err = errors.Join(err, p.close())
		}
	}()
	for _, row := range rows {
		if !c.Takes(&row) {
			continue
		}
		p := &place{row: row}
		places = append(places, p)
		if p.bed, err = setup.Open(row, c.Shape); err != nil {
			return nil, err
		}
		if c.Prepare != nil {
			state, err := c.Prepare(ctx, p.bed)
			if err != nil { // with which may come a nil that has a type
				return nil, fmt.Errorf("%s: %w", row.Name, err)
			}
			p.state = state
		}
	}
	for turn := range run.Repeat {
		for i := range places {
			p := places[(i+turn)%len(places)]
			if err := p.take(ctx, run, c); err != nil {
				return nil, fmt.Errorf("%s: %w", p.row.Name, err)
			}
		}
	}
	var base []report.Sample
	for _, p := range places {
		if p.row.Name == report.PassThrough {
			base = p.samples
		}
	}
	for _, p := range places {
		r := report.Result{
			Scenario: s.Name, Case: c.Name, Where: report.InProcess, Setup: p.row.Name, Parameters: c.Parameters,
		}
		r.Sum(p.samples, base)
		results = append(results, r)
	}
	return results, nil
}

func (p *place) take(ctx context.Context, run report.Run, c *Case) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.state == nil { // the guest of the turn before may still be leaving
		if err := p.bed.WaitFree(ctx); err != nil {
			return err
		}
	}
	t := &Take{Bed: p.bed, State: p.state, Run: run}
	if err := c.Run(ctx, t); err != nil {
		return err
	}
	p.samples = append(p.samples, t.sample)
	return nil
}
