// Package scene says what a scenario is, and runs its cases with every set-up by turns, so that
// other work on the machine hits all set-ups alike.
//
// The package owns nothing between two calls, starts no goroutines and has no locks. A Take
// belongs to the goroutine that runs the case.
package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// Params are the parameters of a run that scenarios depend on.
type Params struct {
	Rounds int
	Quick  bool
}

// Scenario is something to measure in this process.
type Scenario struct {
	Name  string
	About string
	// Rows are set-ups of its own; nil are those of the run.
	Rows  []setup.Row
	Cases func(Params) []Case
}

// Case is one point of a scenario.
type Case struct {
	Name  string // part of a benchmark's name, such as "size=4KiB/engine=CE0"
	Shape setup.Shape
	// Virtual says that the case cannot run with a whole card.
	Virtual bool
	// Prepare makes what all rounds with one server use, and is not measured; nil makes nothing.
	Prepare func(ctx context.Context, s *setup.Server) (io.Closer, error)
	// Run does the case once.
	Run func(ctx context.Context, t *Take) error
}

// Takes reports whether the case is measured with a set-up.
func (c *Case) Takes(row *setup.Row) bool { return !row.Whole || !c.Virtual }

// ErrSkip is returned by Case.Run if the case does not exist with the set-up.
var ErrSkip = errors.New("this case does not exist with this set-up")

// Take is one repetition of a case with one set-up.
type Take struct {
	Server *setup.Server
	State  io.Closer // of Prepare

	last    time.Duration
	phases  []string // in order
	took    map[string]time.Duration
	counts  map[string]float64
	metrics []result.Value
	main    []result.Value // of Per
}

// Phase measures do: its time, and the counters meanwhile. What do starts must have ended when it
// returns. Phases of the same name add up.
func (t *Take) Phase(name string, do func() error) error {
	before := t.Server.Counts()
	at := time.Now()
	err := do()
	t.last = time.Since(at)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if t.took == nil {
		t.took, t.counts = map[string]time.Duration{}, map[string]float64{}
	}
	if !slices.Contains(t.phases, name) {
		t.phases = append(t.phases, name)
	}
	t.took[name] += t.last
	for unit, n := range t.Server.Counts() {
		t.counts[unit] += n - before[unit]
	}
	return nil
}

// Took returns the time of all phases of a name.
func (t *Take) Took(phase string) time.Duration { return t.took[phase] }

// Traps returns the traps of all phases.
func (t *Take) Traps() float64 { return t.counts[result.Traps] }

// Metric adds another measured number.
func (t *Take) Metric(unit string, value float64) {
	t.metrics = append(t.metrics, result.Value{Unit: unit, Value: value})
}

// Rate adds a number per second of the last phase.
func (t *Take) Rate(unit string, n float64) { t.Metric(unit, n/t.last.Seconds()) }

// Per ends the part of the case that its time and counters are of, and divides them by n. Phases
// that follow serve metrics only.
func (t *Take) Per(n int) {
	t.main = t.total()
	for i := range t.main {
		t.main[i].Value /= float64(n)
	}
}

// Time replaces the time of the case. It follows Per.
func (t *Take) Time(ns float64) { t.main[0].Value = ns }

// total returns the time, the traps, the phases and the counters so far.
func (t *Take) total() []result.Value {
	var all time.Duration
	for _, d := range t.took {
		all += d
	}
	out := []result.Value{{Unit: "ns/op", Value: float64(all)}, {Unit: result.Traps, Value: t.counts[result.Traps]}}
	if len(t.phases) > 1 {
		for _, p := range t.phases {
			out = append(out, result.Value{Unit: p + "-ns/op", Value: float64(t.took[p])})
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(t.counts)) {
		if unit != result.Traps {
			out = append(out, result.Value{Unit: unit, Value: t.counts[unit]})
		}
	}
	return out
}

// Values returns what was measured.
func (t *Take) Values() []result.Value {
	if t.main == nil {
		t.Per(1)
	}
	return append(t.main, t.metrics...)
}

// Idle measures the processor time of this process for d, in which nobody has anything to do. The
// time of the case is the processor time in a second.
func (t *Take) Idle(ctx context.Context, d time.Duration) error {
	var before, after unix.Timespec
	err := t.Phase("idle", func() error {
		return errors.Join(
			unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &before), Sleep(ctx, d), unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &after))
	})
	t.Per(1)
	t.Time(float64(after.Nano()-before.Nano()) / t.last.Seconds())
	return err
}

// Sleep waits for d, or for the end of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// served is a server with what was prepared on it.
type served struct {
	row    setup.Row
	server *setup.Server
	state  io.Closer
}

func (s *served) close() error {
	var errs []error
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	return errors.Join(errs...)
}

// Run runs a case with each set-up by turns and hands each repetition to add. Each round begins
// with another set-up, so that none always follows the slowest.
func Run(ctx context.Context, p Params, c *Case, rows []setup.Row, add func(row *setup.Row, values []result.Value)) (err error) {
	var all []*served
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.close())
		}
	}()
	for _, row := range rows {
		if !c.Takes(&row) {
			continue
		}
		s := &served{row: row}
		all = append(all, s)
		if s.server, err = setup.Open(row, c.Shape); err != nil {
			return err
		}
		if c.Prepare != nil {
			state, err := c.Prepare(ctx, s.server)
			if err != nil { // state may be a typed nil
				return fmt.Errorf("%s: %w", row.Name, err)
			}
			s.state = state
		}
	}
	for round := range p.Rounds {
		for i := range all {
			s := all[(i+round)%len(all)]
			values, err := s.take(ctx, c)
			if errors.Is(err, ErrSkip) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.row.Name, err)
			}
			add(&s.row, values)
		}
	}
	return nil
}

func (s *served) take(ctx context.Context, c *Case) ([]result.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.state == nil { // the last round's guest may still be leaving
		if err := s.server.WaitFree(ctx); err != nil {
			return nil, err
		}
	}
	t := &Take{Server: s.server, State: s.state}
	if err := c.Run(ctx, t); err != nil {
		return nil, err
	}
	return t.Values(), nil
}
