// Package bench measures what serving a GPU costs: scenarios, with every set-up by turns in one
// run, in this process and in virtual machines. It writes Go's benchmark format and a table.
//
// Run owns what it starts, and has ended it when it returns. A take and its guests belong to the
// goroutine that runs the case; only crowd and fairness have one for each guest, and wait for all. There are
// no locks.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/lab"
)

// Options of a run.
type Options struct {
	Version   string   // of this program
	Flags     string   // of the command line, for the page
	Setups    []string // names; none are the default ones
	Only      []string // scenarios; none are all
	Repeat    int      // rounds in this process, and boots of each virtual machine; 0 is the default
	Quick     bool
	InProcess bool // no virtual machines
	Machines  bool // virtual machines only
	Kernels   []string
	LLVM      string    // card.llvm, "" for the system's
	Progress  io.Writer // for a person who waits
}

// scenario is something to measure. In this process, a GF100 driver (devmodel/guest) attaches to the
// set-up's socket as QEMU does, and does what drivers and their programs do. In virtual machines,
// nouveau does. Both verify what they move.
type scenario struct {
	name, about string
	cases       func(quick bool) []testCase // in this process; nil is none
	inMachine   func(l *life)               // nil is none
}

// scenarios in their order.
var scenarios = []scenario{probe, doorbell, submit, copies, contexts, program, tables, growth, crowd, fairness, traps, openCL}

// measured returns the names of the scenarios that are measured in the places that the options name.
func (o *Options) measured() (names []string) {
	for _, s := range scenarios {
		if s.cases != nil && !o.Machines || s.inMachine != nil && !o.InProcess {
			names = append(names, s.name)
		}
	}
	return names
}

// List describes what can be measured, with one line for each scenario and set-up.
func List() string {
	mark := func(set bool, sign string) string {
		if set {
			return sign
		}
		return "-"
	}
	var b strings.Builder
	b.WriteString("Scenarios (p: in this process, m: in virtual machines)\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "  %-10s %s%s  %s\n", s.name, mark(s.cases != nil, "p"), mark(s.inMachine != nil, "m"), s.about)
	}
	b.WriteString("\nSet-ups (*: only if --setups names it, or every)\n")
	for _, s := range setups {
		fmt.Fprintf(&b, "  %-17s %s  %s\n", s.name, mark(s.asked, "*"), s.about)
	}
	return b.String()
}

// Check refuses options that make no sense.
func (o *Options) Check() error {
	all := append([]string{every}, distinct(setups, func(s setup) string { return s.name })...)
	err := errors.Join(
		known("--setups", "set-up", o.Setups, all),
		known("--only", "scenario", o.Only, new(Options).measured()),
		known("--kernels", "kernel", o.Kernels, lab.Kernels),
	)
	if err != nil {
		return err
	}
	if o.InProcess && o.Machines {
		return &config.Error{Where: "--in-process and --machines", Reason: "leave nothing to measure; give one of them, or neither"}
	}
	if o.Repeat < 0 {
		return &config.Error{Where: "--repeat", Value: fmt.Sprint(o.Repeat), Reason: "must be 1 or more"}
	}
	here := o.measured()
	for _, n := range o.Only {
		if !slices.Contains(here, n) {
			return &config.Error{Where: "--only", Value: n, Reason: "not measured there; these are: " + strings.Join(here, ", ")}
		}
	}
	return nil
}

// known refuses the names of what there is not.
func known(flag, what string, names, all []string) error {
	for _, n := range names {
		if !slices.Contains(all, n) {
			return &config.Error{Where: flag, Value: n, Reason: "no such " + what + "; " + config.Known(n, all)}
		}
	}
	return nil
}

// asked reports whether a scenario is to be measured.
func (o *Options) asked(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// run is one run under way.
type run struct {
	Options
	setups []setup
	began  time.Time
	out    *record
}

// Run measures. What cannot be measured is in the result's errors. If ctx ends, Run returns its
// error and what was measured by then.
func Run(ctx context.Context, o Options) (*Results, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(o.Kernels) == 0 {
		o.Kernels = []string{"6.12"}
	}
	if inMachines := (&Options{Machines: true}).measured(); o.InProcess || !slices.ContainsFunc(inMachines, o.asked) {
		o.Kernels = nil
	} else if err := prepareMachines(ctx, &o); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &config.Error{Where: "virtual machines", Reason: fmt.Sprintf("none can be booted: %v; --in-process measures without", err)}
	}
	r := &run{Options: o, setups: choose(o.Setups), began: time.Now(), out: new(record)}
	for i := range r.setups {
		r.setups[i].llvm = o.LLVM
	}
	r.out.describe(&o)
	if !o.Machines {
		r.inProcess(ctx)
	}
	for _, k := range o.Kernels {
		if ctx.Err() == nil {
			r.inMachines(ctx, k)
		}
	}
	if ctx.Err() != nil {
		r.out.failed("the run was interrupted")
	}
	out, err := parse(r.out.String())
	return out, errors.Join(ctx.Err(), err)
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "%5.0fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// failed records what could not be measured.
func (r *run) failed(what string, err error) {
	r.out.failed(fmt.Sprintf("%s: %v", what, err))
	r.say("%s: not measured: %v", what, err)
}

func (r *run) inProcess(ctx context.Context) {
	rounds := cmp.Or(r.Repeat, pick(r.Quick, 2, 6))
	r.say("%d rounds in this process", rounds)
	for _, s := range scenarios {
		if s.cases == nil || !r.asked(s.name) {
			continue
		}
		for _, c := range s.cases(r.Quick) {
			if ctx.Err() != nil {
				return
			}
			r.say("%s %s", s.name, c.name)
			err := c.measure(ctx, rounds, r.setups, func(setup *setup, values []benchfmt.Value) {
				r.out.add(Key{process, s.name, c.name, setup.name}, values)
			})
			if err != nil && ctx.Err() == nil {
				r.failed(s.name+" "+c.name, err)
			}
		}
	}
}

// inMachines boots a kernel on each set-up by turns. A round in which a set-up failed is dropped for
// all set-ups, so that the n-th lines of all set-ups are of one round.
func (r *run) inMachines(ctx context.Context, kernel string) {
	boots := cmp.Or(r.Repeat, pick(r.Quick, 1, 2))
	r.say("%d boots of Linux %s in virtual machines on each set-up, of half a minute or more each", boots, kernel)
	if !r.Quick {
		r.warmUp(ctx, kernel)
	}
	for round := range boots {
		lives := new(record)
		whole := true
		for i := range r.setups {
			s := &r.setups[(i+round)%len(r.setups)]
			r.say("boot %d of %d: Linux %s on %s", round*len(r.setups)+i+1, boots*len(r.setups), kernel, s.name)
			err := r.life(ctx, kernel, s, lives)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				r.failed(fmt.Sprintf("Linux %s on %s", kernel, s.name), err)
				whole = false
			}
		}
		if whole {
			r.out.WriteString(lives.String())
		}
	}
}
