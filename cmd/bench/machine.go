package bench

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

var openCL = scenario{
	name: "opencl", about: "OpenCL programs run in the guest, and check their results; time is that of the device by the guest's clock",
	inMachine: (*life).openCL,
}

// mesa is the version of Debian's Mesa that OpenCL programs run with.
const mesa = "25"

// programs are the sources of the OpenCL programs, without ".c", and their sizes: but for storm, most of their time is the card's.
var programs = [][]string{
	{"backprop", "16384"}, {"bfs", "32768"}, {"gaussian", "96"}, {"hotspot", "256", "4"}, {"lud", "192"}, {"matmul", "192"},
	{"nn", "262144"}, {"nw", "512"}, {"pathfinder", "16384", "33"}, {"loop", "65536"}, {"srad", "256", "2"}, {"storm"},
}

// prepareMachines fetches what machines with these kernels need. It fails where none can be booted.
func prepareMachines(ctx context.Context, o *Options) error {
	if _, err := image.Source(); err != nil { // the guests' programs are built from source
		return err
	}
	var machines []lab.Config
	for _, k := range o.Kernels {
		m := lab.Config{Kernel: k}
		if o.asked(openCL.name) {
			m.Mesa = mesa
		}
		machines = append(machines, m)
	}
	_, err := lab.Ensure(ctx, o.Progress, machines...)
	return err
}

// warmUp boots a kernel once: the first boot reads everything from disk.
func (r *run) warmUp(ctx context.Context, kernel string) {
	r.say("Linux %s, to warm up", kernel)
	if vm, err := lab.Start(ctx, lab.Config{Kernel: kernel, Progress: r.Progress}); err == nil { // an error returns with a set-up
		_ = vm.Close()
	}
}

// life is one machine from its boot to its end, with a stock kernel and its own driver. One boot is
// one round.
type life struct {
	*server
	quick  bool
	kernel string
	vm     *lab.VM
	now    string // scenario of the current step
	out    *record
}

// life boots a kernel on a set-up and measures the scenarios that are asked for.
func (r *run) life(ctx context.Context, kernel string, s *setup, out *record) (err error) {
	server, err := open(ctx, s, common)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	cfg := lab.Config{Kernel: kernel, Sockets: []string{server.socket(0)}, Progress: r.Progress}
	if kernel == "6.1" { // its nouveau misses fences on more than one
		cfg.CPUs = 1
	}
	known := ""
	if r.asked(openCL.name) {
		known = r.sayInterpreted(server, "")
		cfg.Mesa = mesa
		var names []string
		for _, p := range programs {
			names = append(names, p[0])
		}
		if cfg.Programs, err = image.Programs(names...); err != nil {
			return err
		}
	}
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Close()) }()
	out.set("qemu", vm.QEMUVersion())
	out.set("accelerator", vm.Accel().Name)
	for _, s := range scenarios {
		l := &life{server: server, quick: r.Quick, kernel: kernel, vm: vm, now: s.name, out: out}
		switch {
		case s.inMachine == nil:
			continue
		case r.asked(s.name):
			r.say("  %s", s.name)
		case s.name == probe.name: // the others need the driver
			l.out = new(record)
		default:
			continue
		}
		if err := caught(func() { s.inMachine(l) }); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, vm.Diagnosis())
		}
		if s.name == openCL.name {
			r.sayInterpreted(server, known)
		}
	}
	return nil
}

// sayInterpreted says why programs do not run as machine code, as far as the server knows, unless that is known.
func (r *run) sayInterpreted(s *server, known string) string {
	status, err := s.running.Status()
	why := status.Card.Interpreted
	if err == nil && why != known {
		r.say("programs run interpreted on %s: %s", s.setup.name, why)
	}
	return why
}

// measure measures one case of the current step.
func (l *life) measure(name string, do func(t *take)) {
	t := newTake(l.server)
	do(t)
	l.out.add(Key{machines, l.now, path.Join("linux="+l.kernel, name), l.setup.name}, t.values())
}

// ask runs a command in the guest.
func (l *life) ask(command string, args, result any) {
	must(l.vm.Agent().Call(l.ctx, command, args, result))
}

// call measures one case that is a command in the guest.
func call[R any](l *life, name, command string, args any, metrics func(t *take, r *R)) {
	l.measure(name, func(t *take) {
		r := new(R)
		t.phase("", func() { l.ask(command, args, r) })
		metrics(t, r)
	})
}
