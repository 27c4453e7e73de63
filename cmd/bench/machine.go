package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

var openCL = scenario{
	name: "opencl", about: "OpenCL programs run in the guest, and check their results; time is that of the device by the guest's clock",
	inMachine: (*life).openCL,
}

var suspend = scenario{
	name: "suspend", about: "the guest powers off; its driver saves what VRAM would lose",
	inMachine: (*life).poweroff,
}

// mesa is the version of Debian's Mesa that OpenCL programs run with.
const mesa = "25"

// programs are the sources of the OpenCL programs, without ".c". Their sizes are their own.
var programs = []string{"backprop", "bfs", "gaussian", "hotspot", "lud", "nn", "nw", "pathfinder", "srad", "storm"}

// prepareMachines fetches what machines with these kernels need. It fails where none can be booted.
func prepareMachines(ctx context.Context, o *Options) error {
	if _, err := image.Source(); err != nil { // the guests' programs are built from source
		return err
	}
	with := ""
	if o.asked(openCL.name) {
		with = mesa
	}
	_, err := lab.Ensure(ctx, o.Progress, with, o.Kernels...)
	return err
}

// life is one machine from its boot to its end, with a stock kernel and its own driver. One boot is
// one round.
type life struct {
	ctx    context.Context
	quick  bool
	kernel string
	server *server
	vm     *lab.VM
	now    string // scenario of the current step
	out    *record
}

// life boots a kernel on a set-up, measures the scenarios that are asked for, and powers off.
func (r *run) life(ctx context.Context, kernel string, s *setup, out *record, asked func(scenario string) bool) (err error) {
	server, err := open(s, common)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	cfg := lab.Config{Kernel: kernel, CPUs: 2, Sockets: []string{server.endpoints[0].socket}, Progress: r.Progress}
	if kernel == "6.1" { // its nouveau misses fences on more than one
		cfg.CPUs = 1
	}
	if asked(openCL.name) {
		root, err := image.Source()
		if err != nil {
			return err
		}
		cfg.Mesa = mesa
		for _, p := range programs {
			cfg.Programs = append(cfg.Programs, filepath.Join(root, "tests/shim/programs", p+".c"))
		}
	}
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	out.set("qemu", vm.QEMUVersion())
	out.set("accelerator", vm.Accel().Name)
	l := &life{ctx: ctx, quick: r.Quick, kernel: kernel, server: server, vm: vm}
	for i := range scenarios {
		s := &scenarios[i]
		l.out = out
		switch {
		case s.inMachine == nil:
			continue
		case asked(s.name):
			r.say("  %s", s.name)
		case s.name == probe.name: // the others need the driver
			l.out = new(record)
		default:
			continue
		}
		l.now = s.name
		if err := caught(func() { s.inMachine(l) }); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, vm.Diagnosis())
		}
	}
	return nil
}

// measure measures one case of the current step.
func (l *life) measure(name string, do func(t *take)) {
	t := &take{ctx: l.ctx, server: l.server}
	do(t)
	full := slices.DeleteFunc([]string{"linux=" + l.kernel, name}, func(s string) bool { return s == "" })
	l.out.add(Key{machines, l.now, filepath.Join(full...), l.server.setup.name}, t.values())
}

// ask runs a command in the guest.
func (l *life) ask(command string, args, result any) {
	must(l.vm.Agent().Call(l.ctx, command, args, result))
}

// call measures one case whose only phase is a command in the guest.
func call[R any](l *life, name, command string, args any, metrics func(t *take, r *R)) {
	l.measure(name, func(t *take) {
		r := new(R)
		t.phase(command, func() { l.ask(command, args, r) })
		metrics(t, r)
	})
}
