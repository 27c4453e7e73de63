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
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
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

// steps in their order. Every machine probes, also when nobody asked how long it
// takes: the rest needs the driver.
var steps = []step{
	{"probe", (*life).probe},
	{"doorbell", (*life).fences},
	{"copy", (*life).copies},
	{"traps", (*life).accesses},
	{"suspend", (*life).poweroff},
}

// Scenarios are those that machines have something to say about.
func Scenarios() (names []string) {
	for _, s := range steps {
		names = append(names, s.scenario)
	}
	return names
}

// Kernel fetches what machines with a kernel need, and says what they run on.
func Kernel(ctx context.Context, version string, progress io.Writer) error {
	_, err := lab.Ensure(ctx, progress, version)
	return err
}

// life is one machine from its boot to its end.
type life struct {
	run    report.Run
	kernel string
	bed    *setup.Bed
	vm     *lab.VM
	asked  func(scenario string) bool
	out    []Measured
}

// Life boots a kernel on a set-up, does the steps asked for, and powers off.
func Life(ctx context.Context, run report.Run, row setup.Row, kernel string, asked func(scenario string) bool, progress io.Writer) (_ []Measured, _ report.Emulator, err error) {
	bed, err := setup.Open(row, setup.Common)
	if err != nil {
		return nil, report.Emulator{}, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	vm, err := lab.Start(ctx, lab.Config{Kernel: kernel, CPUs: processors(kernel), Sockets: []string{bed.Seats[0].Socket}, Progress: progress})
	if err != nil {
		return nil, report.Emulator{}, err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	l := &life{run: run, kernel: kernel, bed: bed, vm: vm, asked: asked}
	e := report.Emulator{QEMU: vm.QEMUVersion(), Accelerator: vm.Accel().Name}
	for _, s := range steps {
		if s.scenario != "probe" && !asked(s.scenario) {
			continue
		}
		if err := s.do(l, ctx); err != nil {
			return nil, e, fmt.Errorf("%s: %w\n%s", s.scenario, err, vm.Diagnosis())
		}
	}
	return slices.DeleteFunc(l.out, func(m Measured) bool { return !asked(m.Scenario) }), e, nil
}

// processors is how many a guest has. Nouveau of 6.1 loses waits for fences on more
// than one.
func processors(kernel string) int {
	if kernel == "6.1" {
		return 1
	}
	return 2
}

// take measures one case.
func (l *life) take(scenario, name string, parameters map[string]string, do func(t *scene.Take) error) error {
	t := &scene.Take{Bed: l.bed, Run: l.run}
	if err := do(t); err != nil {
		return err
	}
	full := "Linux " + l.kernel
	if name != "" {
		full += ", " + name
	}
	parameters["kernel"], parameters["processors"] = l.vm.Kernel(), fmt.Sprint(processors(l.kernel))
	l.out = append(l.out, Measured{Scenario: scenario, Case: full, Parameters: parameters, Sample: t.Sample()})
	return nil
}

// probe loads nouveau.
func (l *life) probe(ctx context.Context) error {
	return l.take("probe", "", map[string]string{}, func(t *scene.Take) error {
		var loaded proto.ModprobeResult
		err := t.Phase("modprobe", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &loaded)
		})
		if err != nil {
			return err
		}
		n := len(loaded.Loaded)
		if n == 0 || loaded.Loaded[n-1].Name != "nouveau" {
			return fmt.Errorf("modprobe loaded %+v, without nouveau", loaded.Loaded)
		}
		t.Figure("guest's clock", report.Nanoseconds, float64(loaded.Loaded[n-1].InitNS))
		var dri proto.DRIResult
		if err := l.vm.Agent().Call(ctx, proto.CmdDRI, nil, &dri); err != nil {
			return err
		}
		if len(dri.Nodes) != 2 {
			return fmt.Errorf("%d nodes in /dev/dri after the probe, want 2", len(dri.Nodes))
		}
		return nil
	})
}

// fences measures submissions, one at a time, by the guest's clock.
func (l *life) fences(ctx context.Context) error {
	n := 500
	if l.run.Quick {
		n = 100
	}
	return l.take("doorbell", "fences", map[string]string{"submissions": fmt.Sprint(n)}, func(t *scene.Take) error {
		var r proto.FencesResult
		err := t.Phase("fences", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdFences, proto.FencesArgs{Count: n}, &r)
		})
		if err == nil && (r.Wrong > 0 || r.CrossWrong > 0) {
			err = errors.New("fences came out wrong")
		}
		t.Figure("p50", report.Nanoseconds, float64(r.MedianNS))
		t.Figure("p99", report.Nanoseconds, float64(r.P99NS))
		return err
	})
}

// copies measures each engine at some sizes. The guest verifies what it copies.
func (l *life) copies(ctx context.Context) error {
	sizes := []uint32{4 << 10, 64 << 10, 1 << 20, 4 << 20}
	if l.run.Quick {
		sizes = []uint32{4 << 10, 1 << 20}
	}
	for _, size := range sizes {
		for _, engine := range []string{"m2mf", "ce0", "ce1"} {
			name := fmt.Sprintf("%d KiB, %s", size>>10, strings.ToUpper(engine))
			p := map[string]string{"bytes": fmt.Sprint(size), "engine": strings.ToUpper(engine), "rounds": "20"}
			err := l.take("copy", name, p, func(t *scene.Take) error {
				var r proto.BenchResult
				err := t.Phase("all ways", func() error {
					return l.vm.Agent().Call(ctx, proto.CmdBench, proto.BenchArgs{Engines: []string{engine}, Sizes: []uint32{size}, Rounds: 20, Registers: 1}, &r)
				})
				for _, c := range r.Copies {
					if c.Engine == engine {
						t.Figure(c.From+" to "+c.To, report.BytesPerSecond, c.MiBps*(1<<20))
					}
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// accesses measures the loads and stores of a program in the guest.
func (l *life) accesses(ctx context.Context) error {
	const n = 500
	return l.take("traps", "accesses", map[string]string{"accesses": fmt.Sprint(n)}, func(t *scene.Take) error {
		var r proto.BenchResult
		err := t.Phase("accesses", func() error {
			return l.vm.Agent().Call(ctx, proto.CmdBench, proto.BenchArgs{Engines: []string{"m2mf"}, Sizes: []uint32{4096}, Rounds: 1, Registers: n}, &r)
		})
		if err == nil && len(r.Skipped) > 0 {
			err = fmt.Errorf("the guest could not measure: %s", strings.Join(r.Skipped, "; "))
		}
		for _, a := range r.Access {
			t.Figure(a.What, report.Nanoseconds, a.NS)
		}
		return err
	})
}

// poweroff shuts the guest down; its driver saves what VRAM would lose.
func (l *life) poweroff(ctx context.Context) error {
	return l.take("suspend", "poweroff", map[string]string{}, func(t *scene.Take) error {
		var guest float64
		err := t.Phase("poweroff", func() error {
			took, err := l.vm.TimedPoweroff(ctx)
			guest = float64(took)
			return err
		})
		t.Figure("guest's clock", report.Nanoseconds, guest)
		return err
	})
}
