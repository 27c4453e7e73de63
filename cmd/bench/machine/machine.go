// Package machine has the scenarios of virtual machines: a stock kernel with its
// own driver boots on a set-up's socket, and does what it is told. The measures
// of one boot are one turn; a set-up's machine has ended before the next boots.
//
// The package owns the machine and the set-up of one turn, and has ended both
// when Life returns. It has no locks and starts no goroutines.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/image"
)

// Kernels are the versions that can be booted.
var Kernels = lab.Kernels

// Measured is one case of a life.
type Measured struct {
	Scenario, Case string
	Parameters     map[string]string
	Sample         report.Sample
}

// A step is what a machine does in its life, for which scenario.
type step struct {
	scenario string
	do       func(l *life, ctx context.Context) error
}

// always is the scenario whose step every machine does, also when nobody asked how long it
// takes: the rest needs the driver.
const always = "probe"

// steps in their order.
var steps = []step{
	{always, (*life).probe},
	{"contexts", (*life).contexts},
	{"doorbell", (*life).fences},
	{"storm", (*life).storm},
	{report.Bells, (*life).bells},
	{"tables", (*life).tables},
	{"copy", (*life).copies},
	{report.Accesses, (*life).accesses},
	{report.Accesses, (*life).bandwidth},
	{"neighbour", (*life).idle},
	{"suspend", (*life).poweroff},
}

// Scenarios are those that machines have something to say about.
func Scenarios() (names []string) {
	for _, s := range steps {
		names = append(names, s.scenario)
	}
	return slices.Compact(names)
}

// Possible says why no machine can be booted from here: the guests' programs are built
// from the source.
func Possible() error {
	_, err := image.Source()
	return err
}

// Kernel fetches what machines with a kernel need, and says what they run on.
func Kernel(ctx context.Context, version string, progress io.Writer) error {
	_, err := lab.Ensure(ctx, progress, version)
	return err
}

// A Plan is what machines are booted for: with which ways to share the card's time.
type Plan struct {
	Schedulers []scene.Scheduler // the first one is there at boot
	// Only is the one scenario that is told by it; "" is all of them.
	Only string
}

// Plans are of a run in which scenarios are asked for. A scheduler is there from the start
// or not at all, so doorbells with one take boots of their own: those who name the scenario get
// them.
func Plans(named []string) []Plan {
	plans := []Plan{{Schedulers: scene.Schedulers[:1]}}
	if slices.Contains(named, report.Bells) {
		plans = append(plans, Plan{Schedulers: scene.Schedulers[1:], Only: report.Bells})
	}
	return plans
}

// For tells whether a set-up is booted for what is asked.
func (p *Plan) For(row *setup.Row, asked func(scenario string) bool) bool {
	virtual := !row.Whole || !p.Schedulers[0].Virtual()
	return virtual && slices.ContainsFunc(steps, func(s step) bool { return p.does(s.scenario, row, asked) })
}

func (p *Plan) does(scenario string, row *setup.Row, asked func(scenario string) bool) bool {
	return asked(scenario) && (p.Only == "" || p.Only == scenario) && (scenario != report.Bells || row.Bells)
}

// life is one machine from its boot to its end.
type life struct {
	plan   *Plan
	run    report.Run
	kernel string
	bed    *setup.Bed
	vm     *lab.VM
	now    string // the scenario of the step under way
	out    []Measured
}

// Life boots a kernel on a set-up, does the steps asked for, and powers off.
func Life(ctx context.Context, run report.Run, plan *Plan, row setup.Row, kernel string, asked func(scenario string) bool, progress io.Writer) (_ []Measured, _ report.Emulator, err error) {
	bed, err := setup.Open(row, plan.Schedulers[0].Shape(setup.Common))
	if err != nil {
		return nil, report.Emulator{}, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	vm, err := lab.Start(ctx, lab.Config{Kernel: kernel, CPUs: processors(kernel), Sockets: []string{bed.Seats[0].Socket}, Progress: progress})
	if err != nil {
		return nil, report.Emulator{}, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	l := &life{plan: plan, run: run, kernel: kernel, bed: bed, vm: vm}
	e := report.Emulator{QEMU: vm.QEMUVersion(), Accelerator: vm.Accel().Name}
	for _, s := range steps {
		if s.scenario != always && !plan.does(s.scenario, &row, asked) {
			continue
		}
		l.now = s.scenario
		if err := s.do(l, ctx); err != nil {
			return nil, e, fmt.Errorf("%s: %w\n%s", s.scenario, err, vm.Diagnosis())
		}
	}
	return slices.DeleteFunc(l.out, func(m Measured) bool { return !plan.does(m.Scenario, &row, asked) }), e, nil
}

// processors is how many a guest has. Nouveau of 6.1 loses waits for fences on more
// than one.
func processors(kernel string) int {
	if kernel == "6.1" {
		return 1
	}
	return 2
}

// take measures one case of the step under way.
func (l *life) take(name string, parameters map[string]string, do func(t *scene.Take) error) error {
	t := &scene.Take{Bed: l.bed, Run: l.run}
	if err := do(t); err != nil {
		return err
	}
	full := "Linux " + l.kernel
	if name != "" {
		full += ", " + name
	}
	parameters["kernel"], parameters["processors"] = l.vm.Kernel(), fmt.Sprint(processors(l.kernel))
	l.out = append(l.out, Measured{Scenario: l.now, Case: full, Parameters: parameters, Sample: t.Sample()})
	return nil
}
