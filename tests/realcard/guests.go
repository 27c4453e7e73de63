package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// The kernel of the bundle, and how long the console of a guest may be silent.
const (
	kernel = "7.2"
	quiet  = 3 * time.Minute
)

// guests are some at once, each with a GPU of one card.
type guests struct {
	*run
	name    string
	weights []int
	image   string // of the bundle; image.cpio if it is empty
	memory  int    // MiB, 0 for a machine's usual
	s       *server
	vms     []*lab.VM
}

// guestStep is what guests do.
type guestStep struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context, s *result) error
}

// guestsAtOnce takes n stock guests through a driver's life.
func (r *run) guestsAtOnce(n int) {
	g := &guests{run: r, name: fmt.Sprintf("guests-%d", n), weights: equal(n)}
	g.life([]guestStep{
		{"copies", 4 * time.Minute, g.copies},
		{"timeline", 2 * time.Minute, g.timeline},
		{"triangle", 2 * time.Minute, g.triangle},
		{"compute", 2 * time.Minute, g.compute},
		{"vkmark", 5 * time.Minute, g.vkmark},
		{"cel", time.Minute, g.cel},
		{"fault", 3 * time.Minute, g.fault},
		{"server", time.Minute, g.server},
		{"poweroff", 2 * time.Minute, g.poweroff},
	})
}

// weighed has two stock guests of weights 1:3 draw what an engine is busy with.
func (r *run) weighed() {
	if r.card == nvidia { // the software card does not draw
		g := &guests{run: r, name: "weights", weights: []int{100, 300}}
		g.life([]guestStep{{"vkmark", 4 * time.Minute, g.busyScene}})
	}
}

// life boots guests and has them make steps.
func (g *guests) life(steps []guestStep) {
	r := g.run
	if !r.wants(g.name) {
		return
	}
	before, err := r.used(r.ctx)
	defer g.close()
	if err != nil || !r.must(g.name+"/boot", 6*time.Minute, g.boot) || !r.must(g.name+"/probe", 4*time.Minute, g.probe) {
		return
	}
	for _, step := range steps {
		r.step(g.name+"/"+step.name, step.limit, step.do)
	}
	r.step(g.name+"/end", time.Minute, func(ctx context.Context, _ *result) error {
		return errors.Join(g.s.end(ctx), r.clean(ctx, before))
	})
}

// close ends what still runs.
func (g *guests) close() {
	for _, vm := range g.vms {
		if vm != nil {
			vm.Close() // its files are in a temporary folder
		}
	}
	if g.s != nil && g.s.Process != nil {
		g.s.Kill()
		g.s.keep() // a step says so before, if all is well
	}
}

// each does the same in all guests at once.
func (g *guests) each(do func(i int, vm *lab.VM) error) error {
	errs := make([]error, len(g.vms))
	var all sync.WaitGroup
	for i, vm := range g.vms {
		all.Go(func() {
			if err := do(i, vm); err != nil {
				errs[i] = fmt.Errorf("guest %c: %w", 'a'+i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (g *guests) boot(ctx context.Context, _ *result) (err error) {
	if g.s, err = g.serve(ctx, g.name, g.weights...); err != nil {
		return err
	}
	g.vms = make([]*lab.VM, len(g.weights))
	return g.each(func(i int, _ *lab.VM) (err error) {
		logs := fmt.Sprintf("%s-%c", g.name, 'a'+i)
		// The machines outlive the step.
		g.vms[i], err = lab.Start(g.ctx, lab.Config{
			Kernel: kernel, Chip: lab.ChipGH100, Image: filepath.Join(g.dir, cmp.Or(g.image, "image.cpio")), Memory: g.memory, CPUs: 1, Accel: lab.AccelTCG,
			Sockets: []string{g.s.sockets[i]}, BootTimeout: quiet, Dir: logs,
		})
		return err
	})
}

func (g *guests) probe(ctx context.Context, s *result) error {
	return g.each(func(i int, vm *lab.VM) error {
		var r proto.ModprobeResult
		if err := vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, &r); err != nil {
			return err
		}
		s.note("probe "+vmName(i), float64(r.Loaded[len(r.Loaded)-1].InitNS)/1e9, "s")
		log, err := vm.KernelLog(ctx)
		k, _ := nouveau.Of(lab.ChipGH100, vm.Kernel())
		if problems := k.Problems(log, 1); err == nil && len(problems) > 0 {
			err = errors.New(strings.Join(problems, "; "))
		}
		return err
	})
}

func vmName(i int) string { return string(rune('a' + i)) }

// copies are those of the driver's old and new interface and its own moves, with fences, all verified.
func (g *guests) copies(ctx context.Context, s *result) error {
	return g.each(func(i int, vm *lab.VM) error {
		var fences proto.FencesResult
		var sum uint64
		for _, cmd := range []string{proto.CmdCE, proto.CmdExec} {
			var r proto.CopyResult
			if err := vm.Agent().Call(ctx, cmd, proto.CopyArgs{Seed: uint64(i + 1)}, &r); err != nil {
				return err
			}
			sum += r.Bytes
		}
		err := vm.Agent().Call(ctx, proto.CmdBOMoves, proto.BOMovesArgs{Bytes: 4 << 20}, nil)
		if err == nil {
			err = vm.Agent().Call(ctx, proto.CmdFences, proto.FencesArgs{Count: 200}, &fences)
		}
		s.note("right "+vmName(i), float64(sum)/(1<<20), "MiB")
		s.note("fence "+vmName(i), float64(fences.MedianNS)/1e3, "us")
		return err
	})
}

// program runs one in each guest. Its control, in the first guest, must find that all is wrong.
func (g *guests) program(ctx context.Context, name string) error {
	err := g.each(func(_ int, vm *lab.VM) error {
		out, err := runIn(ctx, vm, nil, name)
		if err == nil && !strings.Contains(out, "(NVK GH100): 0 of") {
			err = fmt.Errorf("it said: %.200s", out)
		}
		return err
	})
	if err != nil {
		return err
	}
	if out, err := runIn(ctx, g.vms[0], nil, name, "noop"); err == nil {
		return fmt.Errorf("the control, which gives the GPU nothing to do, found all right: %.200s", out)
	}
	return nil
}

// runIn runs a program in a guest.
func runIn(ctx context.Context, vm *lab.VM, env []string, argv ...string) (string, error) {
	var r proto.RunResult
	err := vm.Agent().Call(ctx, proto.CmdRun, proto.RunArgs{Argv: argv, Env: env, TimeoutMS: 280_000}, &r)
	return r.Output, err
}

func (g *guests) timeline(ctx context.Context, _ *result) error { return g.program(ctx, "timeline") }

// refused marks an error as expected if the software card stopped the program's channel: it executes no code of SM90.
func (g *guests) refused(err error) error {
	stopped := func(sign string) bool { return err != nil && strings.Contains(err.Error(), sign) }
	if g.card == soft && (stopped("VkResult -4") || stopped("ErrorDeviceLost") || stopped("65536 of 65536") || stopped("1048576 of 1048576")) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

func (g *guests) compute(ctx context.Context, _ *result) error {
	return g.refused(g.program(ctx, "compute"))
}

// triangle draws in all guests, and keeps the first one's picture.
func (g *guests) triangle(ctx context.Context, _ *result) error {
	if err := g.refused(g.program(ctx, "triangle")); err != nil {
		return err
	}
	text, err := runIn(ctx, g.vms[0], nil, "triangle", "picture")
	if err != nil {
		return err
	}
	return keepPicture(text, g.name+"-triangle.png")
}

// fault has a process of the last guest read unmapped memory while the others copy. Only that process may lose
// its channel, and only that guest's GPU may count a fault.
func (g *guests) fault(ctx context.Context, s *result) error {
	last := len(g.vms) - 1
	before, err := g.s.Status(ctx)
	if err != nil {
		return err
	}
	err = g.each(func(i int, vm *lab.VM) error {
		if i < last {
			return vm.Agent().Call(ctx, proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
		}
		var r proto.OffenceResult
		err := vm.Agent().Call(ctx, proto.CmdFault, proto.OffenceArgs{What: "ce-read", Seed: 5}, &r)
		s.note("copies beside", float64(r.Background.Copies), "")
		return err
	})
	err = errors.Join(err, g.each(func(i int, vm *lab.VM) error {
		if i == last {
			return nil
		}
		var r proto.LoadTotals
		err := vm.Agent().Call(ctx, proto.CmdLoadStop, nil, &r)
		if r.Wrong > 0 || r.Copies == 0 {
			err = errors.Join(err, fmt.Errorf("%d of %d copies were wrong", r.Wrong, r.Copies))
		}
		return err
	}))
	after, statusErr := g.s.Status(ctx)
	if err = errors.Join(err, statusErr); err != nil {
		return err
	}
	for i := range after.GPUs {
		n := after.GPUs[i].Count("mmu_faults") - before.GPUs[i].Count("mmu_faults")
		if (n > 0) != (i == last) {
			err = errors.Join(err, fmt.Errorf("the server counts %d faults of GPU %s", n, after.GPUs[i].Name))
		}
	}
	return err
}

// server notes what the server counted. No guest may have touched a register that its GPU lacks.
func (g *guests) server(ctx context.Context, s *result) error {
	r, err := g.s.Report(ctx)
	if err != nil {
		return err
	}
	status, err := g.s.Status(ctx)
	if err != nil {
		return err
	}
	for i, gpu := range status.GPUs {
		s.note("traps "+gpu.Name, float64(gpu.Traps), "")
		s.note("pieces of windows "+gpu.Name, float64(gpu.Count("map_runs")), "")
		s.note("rules broken "+gpu.Name, float64(gpu.Broken()), "")
		if holes := r.GPUs[i].Registers.Missed.Holes; len(holes) > 0 {
			err = errors.Join(err, fmt.Errorf("GPU %s has no registers at %+v", gpu.Name, holes))
		}
		if gpu.Quarantine != "" || gpu.OutOfService != "" {
			err = errors.Join(err, fmt.Errorf("GPU %s: %s%s", gpu.Name, gpu.Quarantine, gpu.OutOfService))
		}
	}
	return err
}

func (g *guests) poweroff(ctx context.Context, _ *result) error {
	return g.each(func(_ int, vm *lab.VM) error { return vm.Poweroff(ctx) })
}
