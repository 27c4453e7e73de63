// Package machine has the scenarios of virtual machines: a stock kernel with its own driver boots
// on a set-up's socket and runs the steps of the scenarios. One boot is one round. A machine ends before the
// next one boots.
//
// The package owns the machine and the server of one round, and has ended both when Life returns. It
// has no locks and starts no goroutines.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

// Kernels are the versions that can be booted.
var Kernels = lab.Kernels

// Measured is one case of a life.
type Measured struct {
	Scenario, Case string
	Values         []result.Value
}

// A step is what a machine does in its life, for which scenario.
type step struct {
	scenario string
	do       func(l *life, ctx context.Context) error
}

// probe is the step that every machine does, because the others need the driver.
const probe = "probe"

// Bandwidth is the scenario that only machines have.
const (
	Bandwidth      = "bandwidth"
	BandwidthAbout = "a program in the guest reads and writes VRAM through its windows"
)

// steps in their order.
var steps = []step{
	{probe, (*life).probe},
	{"contexts", (*life).contexts},
	{"doorbell", (*life).fences},
	{"doorbell", (*life).doorbells},
	{"submit", (*life).submit},
	{"tables", (*life).tables},
	{"copy", (*life).copies},
	{"traps", (*life).accesses},
	{Bandwidth, (*life).bandwidth},
	{OpenCL, (*life).openCL},
	{"neighbour", (*life).idle},
	{"suspend", (*life).poweroff},
}

// Scenarios returns the names of the scenarios of machines.
func Scenarios() (names []string) {
	for _, s := range steps {
		names = append(names, s.scenario)
	}
	return slices.Compact(names)
}

// Prepare fetches what machines with these kernels need. It fails where none can be booted.
func Prepare(ctx context.Context, kernels []string, asked func(scenario string) bool, progress io.Writer) error {
	if _, err := image.Source(); err != nil { // the guests' programs are built from source
		return err
	}
	with := ""
	if asked(OpenCL) {
		with = mesa
	}
	_, err := lab.Ensure(ctx, progress, with, kernels...)
	return err
}

// life is one machine from its boot to its end.
type life struct {
	quick  bool
	kernel string
	server *setup.Server
	vm     *lab.VM
	now    string // scenario of the current step
	out    []Measured
}

// Emulator is what machines run on.
type Emulator struct{ QEMU, Accelerator string }

// Life boots a kernel on a set-up, measures the scenarios that are asked for, and powers off. It
// calls begin before each.
func Life(ctx context.Context, quick bool, row setup.Row, kernel string, asked func(scenario string) bool, progress io.Writer, begin func(scenario string)) (_ []Measured, e Emulator, err error) {
	server, err := setup.Open(row, setup.Common)
	if err != nil {
		return nil, e, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	cfg := lab.Config{Kernel: kernel, CPUs: processors(kernel), Sockets: []string{server.Endpoints[0].Socket}, Progress: progress}
	if asked(OpenCL) {
		if err := withMesa(&cfg); err != nil {
			return nil, e, err
		}
	}
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return nil, e, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	e = Emulator{vm.QEMUVersion(), vm.Accel().Name}
	l := &life{quick: quick, kernel: kernel, server: server, vm: vm}
	for _, s := range steps {
		if s.scenario != probe && !asked(s.scenario) {
			continue
		}
		if l.now != s.scenario {
			begin(s.scenario)
		}
		l.now = s.scenario
		if err := s.do(l, ctx); err != nil {
			return nil, e, fmt.Errorf("%s: %w\n%s", s.scenario, err, vm.Diagnosis())
		}
	}
	return slices.DeleteFunc(l.out, func(m Measured) bool { return !asked(m.Scenario) }), e, nil
}

// processors returns how many a guest has. Nouveau of Linux 6.1 misses fences on more than one.
func processors(kernel string) int {
	if kernel == "6.1" {
		return 1
	}
	return 2
}

// measure measures one case of the current step.
func (l *life) measure(name string, do func(t *scene.Take) error) error {
	t := &scene.Take{Server: l.server}
	if err := do(t); err != nil {
		return err
	}
	full := "linux=" + l.kernel
	if name != "" {
		full += "/" + name
	}
	l.out = append(l.out, Measured{l.now, full, t.Values()})
	return nil
}

// call measures one case whose only phase is a request to the guest's agent.
func call[R any](ctx context.Context, l *life, name, command string, args any, metrics func(t *scene.Take, r *R) error) error {
	return l.measure(name, func(t *scene.Take) error {
		r := new(R)
		if err := t.Phase(command, func() error { return l.vm.Agent().Call(ctx, command, args, r) }); err != nil {
			return err
		}
		return metrics(t, r)
	})
}

// pick returns the small or the full parameter of the run.
func (l *life) pick(quick, full int) int {
	if l.quick {
		return quick
	}
	return full
}
