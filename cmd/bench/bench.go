// Package bench measures what serving a GPU costs: scenarios, with every set-up by turns in one
// run, in this process and in virtual machines.
//
// setup has the ways to serve a GPU, scene runs a case with each of them, inside has the scenarios
// of this process, machine those of virtual machines, and result what was measured.
//
// Run owns what it starts, and has ended it when it returns. The package has no locks and starts
// no goroutines of its own.
package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Options of a run.
type Options struct {
	Version   string   // of this program
	Setups    []string // names; none are the default ones
	Only      []string // scenarios; none are all
	Rounds    int      // repetitions in this process
	Quick     bool
	InProcess bool // no virtual machines
	Machines  bool // virtual machines only
	Boots     int  // of each virtual machine
	Kernels   []string
	Progress  io.Writer // for a person who waits
}

// DefaultKernel is booted if no kernel is named.
const DefaultKernel = "6.12"

// run is one run under way.
type run struct {
	Options
	params scene.Params
	rows   []setup.Row
	began  time.Time
	out    *result.Run
}

// Run measures. What cannot be measured is in the result's errors. If ctx ends, Run returns its
// error and what was measured by then.
func Run(ctx context.Context, o Options) (*result.Run, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	rows, err := setup.Choose(o.Setups)
	if err != nil {
		return nil, err
	}
	if o.useMachines() {
		if err := machine.Prepare(ctx, o.kernels(), o.asked, o.Progress); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &config.Error{Where: "virtual machines", Reason: fmt.Sprintf("none can be booted: %v; --in-process measures without", err)}
		}
	}
	r := &run{
		Options: o, rows: rows, began: time.Now(), out: result.NewRun(), params: scene.Params{Rounds: o.Rounds, Quick: o.Quick},
	}
	r.say("%s", o.plan(len(rows)))
	r.out.Notes = append(r.out.Notes, fmt.Sprintf("umbra bench %s, %s, %s", o.Version, runtime.Version(), r.began.UTC().Format(time.RFC3339)))
	if hint := result.BusyHint(); hint != "" {
		r.out.Notes = append(r.out.Notes, hint)
	}
	if o.Quick {
		r.out.Set("quick", "true")
	}
	if !o.Machines {
		err = r.inProcess(ctx)
	}
	if err == nil && o.useMachines() {
		err = r.inMachines(ctx)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
		r.out.Errors = append(r.out.Errors, "the run was interrupted")
	}
	return r.out, err
}

// plan says what a run does.
func (o *Options) plan(setups int) string {
	text := fmt.Sprintf("%d rounds in this process", o.Rounds)
	if o.Machines {
		text = "nothing in this process"
	}
	if o.useMachines() {
		text += fmt.Sprintf(", then %d boots of virtual machines, of half a minute or more each", o.Boots*setups*len(o.kernels()))
	}
	return text
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%5.0fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// failed records what could not be measured.
func (r *run) failed(what string, err error) {
	r.out.Errors = append(r.out.Errors, what+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	r.say("%s: not measured: %v", what, err)
}

func (r *run) inProcess(ctx context.Context) error {
	for i := range inside.Scenarios {
		s := &inside.Scenarios[i]
		if !r.asked(s.Name) {
			continue
		}
		rows := r.rows
		if s.Rows != nil {
			rows = s.Rows
		}
		for _, c := range s.Cases(r.params) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.say("%s %s", s.Name, c.Name)
			err := scene.Run(ctx, r.params, &c, rows, func(row *setup.Row, values []result.Value) {
				r.out.Add(result.Key{Where: result.Process, Scenario: s.Name, Case: c.Name, Setup: row.Name}, values)
			})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.failed(s.Name+" "+c.Name, err)
			}
		}
	}
	return nil
}

// inMachines boots every kernel on every set-up by turns.
func (r *run) inMachines(ctx context.Context) error {
	for _, k := range r.kernels() {
		// The first machine reads everything from disk, so it is not measured.
		if !r.Quick {
			r.say("Linux %s on %s, to warm up", k, r.rows[0].Name)
			began := time.Now()
			if _, _, err := r.life(ctx, k, r.rows[0], func(string) bool { return false }); err == nil {
				n := r.Boots * len(r.rows)
				r.say("%d more boots, which take %v and more", n, (time.Since(began) * time.Duration(n)).Round(time.Second))
			}
		}
		r.boots(ctx, k)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// life is that of one machine.
func (r *run) life(ctx context.Context, kernel string, row setup.Row, asked func(string) bool) ([]machine.Measured, machine.Emulator, error) {
	return machine.Life(ctx, r.Quick, row, kernel, asked, r.Progress, func(scenario string) { r.say("  %s", scenario) })
}

// boots boots one kernel on each set-up by turns. A round in which a set-up failed is dropped for
// all set-ups, so that the n-th lines of all set-ups are of one round.
func (r *run) boots(ctx context.Context, k string) {
	for round := range r.Boots {
		lives := make([][]machine.Measured, len(r.rows))
		whole := true
		for i := range r.rows {
			if ctx.Err() != nil {
				return
			}
			at := (i + round) % len(r.rows)
			row := r.rows[at]
			r.say("boot %d of %d: Linux %s on %s", round*len(r.rows)+i+1, r.Boots*len(r.rows), k, row.Name)
			measured, e, err := r.life(ctx, k, row, r.asked)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				r.failed(fmt.Sprintf("Linux %s on %s", k, row.Name), err)
				whole = false
				continue
			}
			r.out.Set("qemu", e.QEMU)
			r.out.Set("accelerator", e.Accelerator)
			lives[at] = measured
		}
		for i := range lives {
			for _, m := range lives[i] {
				if whole {
					r.out.Add(result.Key{Where: result.Machine, Scenario: m.Scenario, Case: m.Case, Setup: r.rows[i].Name}, m.Values)
				}
			}
		}
	}
}
