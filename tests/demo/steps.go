package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// settle is how long the server may take to notice or to do something.
const settle = time.Minute

// demo is one run. Its methods run on one goroutine, except those of a step for each
// guest, which touch their own guest only.
type demo struct {
	ctx         context.Context
	p           *printer
	server      *testserver.Process
	guests      []*guest
	passThrough bool
	mesa        string // version, "" for none

	accel  string
	held   int
	failed []string
	totals [][]string // a table of what the server counted
}

// step is one check, or one for each guest at the same time.
type step struct {
	name   string
	each   bool // "boot a", "boot b"
	need   bool // the run ends if it fails
	shared bool // only with several guests
	mesa   bool // only with Mesa
	do     func(d *demo, g *guest, c *check)
}

// steps are the checks in order. Those of one guest use the first guest; the last
// guest makes the fault and loses its power.
var steps = []step{
	{name: "boot", each: true, need: true, do: (*demo).boot},
	{name: "probe", each: true, need: true, do: (*demo).probe},
	{name: "copies", each: true}, // do is set below: the copies of all guests overlap
	{name: "card's count", do: (*demo).cardAgrees},
	{name: "reboot", do: (*demo).reboot},
	{name: "GPU fault", do: (*demo).fault},
	{name: "out of bounds", shared: true, do: (*demo).outOfBounds},
	{name: "OpenCL", each: true, mesa: true, do: (*demo).openCL},
	{name: "registers", do: (*demo).registers},
	{name: "power cut", shared: true, do: (*demo).powerCut},
	{name: "power-off", do: (*demo).powerOff},
	{name: "server's end", do: (*demo).stopServer},
}

// all makes the checks.
func (d *demo) all() error {
	for _, s := range steps {
		if s.shared && d.passThrough || s.mesa && d.mesa == "" {
			continue
		}
		if s.name == "copies" {
			s.do = d.copies()
		}
		guests := d.guests[:1]
		if s.each {
			guests = d.guests
		}
		held := d.step(s, guests)
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if !held && s.need {
			for _, g := range d.guests {
				if g.vm != nil {
					d.p.line("%s: %s", g.name, g.vm.Diagnosis())
				}
			}
			return fmt.Errorf("FAILED: %s; the other checks need it", strings.Join(d.failed, ", "))
		}
	}
	d.p.line("")
	d.p.table(d.totals)
	d.p.line("")
	if len(d.failed) > 0 {
		return fmt.Errorf("FAILED: %s; %d other checks held", strings.Join(d.failed, ", "), d.held)
	}
	return nil
}

// step makes the checks of one step at the same time, and prints each when it is done.
func (d *demo) step(s step, guests []*guest) (held bool) {
	done := make(chan *check)
	var left []string
	for _, g := range guests {
		c := &check{name: s.name}
		if s.each {
			c.name += " " + g.name
		}
		left = append(left, c.name)
		go func() {
			began := time.Now()
			s.do(d, g, c)
			c.took = time.Since(began)
			done <- c
		}()
	}
	held = true
	for len(left) > 0 {
		d.p.waiting(left)
		c := <-done
		left = slices.DeleteFunc(left, func(name string) bool { return name == c.name })
		d.p.waiting(nil)
		d.p.check(c)
		if len(c.problems) == 0 {
			d.held++
		} else {
			d.failed, held = append(d.failed, c.name), false
		}
	}
	return held
}

func (d *demo) boot(g *guest, c *check) {
	machine := lab.Config{
		Kernel: g.version, Sockets: []string{filepath.Join(d.server.Dir, g.name+".sock")}, CPUs: 1, Memory: 512, Reboot: true,
	}
	if d.mesa != "" {
		programs, err := image.Programs("primes")
		if err != nil {
			c.fail("%v", err)
			return
		}
		machine.Mesa, machine.Programs, machine.Memory = d.mesa, programs, lab.MesaMemory
	}
	vm, err := lab.Start(d.ctx, machine)
	if err != nil {
		c.fail("%v", err)
		return
	}
	g.vm = vm
	c.detail = "Linux " + g.release
	if g == d.guests[0] {
		d.accel = vm.Accel().Name
	}
}

// copies makes the checks of all guests. Each has a process that copies from before
// the first suite until after the last one.
func (d *demo) copies() func(d *demo, g *guest, c *check) {
	var begun, done sync.WaitGroup
	begun.Add(len(d.guests))
	done.Add(len(d.guests))
	return func(d *demo, g *guest, c *check) {
		stop := d.load(g, c)
		begun.Done()
		begun.Wait()
		kinds := d.suite(g, c, proto.CmdM2MF) + d.suite(g, c, proto.CmdCE)
		done.Done()
		done.Wait()
		stop()
		c.detail = fmt.Sprintf("%s copies of %d kinds, %s, all verified", digits(g.copies), kinds, size(g.bytes()))
	}
}

// cardAgrees compares what the guests verified with the card's own counts.
func (d *demo) cardAgrees(_ *guest, c *check) {
	r, err := d.server.Report(d.ctx)
	if err != nil {
		c.fail("%v", err)
		return
	}
	var sum uint64
	verified := map[string]uint64{}
	for i, g := range d.guests {
		moved := map[string]uint64{}
		for _, w := range r.GPUs[i].Work {
			moved[w.Class] = w.Bytes
		}
		for class, n := range g.verified {
			verified[class] += n
			c.want(d.passThrough || moved[class] >= n, "%s verified %d bytes of class %s, the card moved %d for it", g.name, n, class, moved[class])
		}
	}
	for _, engine := range []string{"m2mf", "ce0", "ce1"} {
		class := fmt.Sprintf("%04x", classes[engine])
		i := slices.IndexFunc(r.Card.Classes, func(k api.ClassCount) bool { return k.Class == class })
		if i < 0 || verified[class] == 0 {
			c.fail("no copy by %s was verified", engine)
			continue
		}
		n := r.Card.Classes[i].Bytes
		c.want(n >= verified[class], "guests verified %d bytes by %s, the card moved %d", verified[class], engine, n)
		sum += n
	}
	c.detail = fmt.Sprintf("%s moved by three engines, no less than verified", size(sum))
}

func (d *demo) reboot(g *guest, c *check) {
	others := d.beside(g, c, func() {
		if err := g.vm.Reboot(d.ctx); err != nil {
			c.fail("%v", err)
			return
		}
		d.probe(g, c)
		d.suite(g, c, proto.CmdM2MF)
	})
	c.detail = fmt.Sprintf("%s rebooted, probed and copied%s", g.name, others)
}

func (d *demo) last() *guest { return d.guests[len(d.guests)-1] }

// fault makes a process of the last guest read unmapped memory. Only that process must lose
// its channel.
func (d *demo) fault(_ *guest, c *check) {
	g := d.last()
	before := d.counts(c, "mmu_faults")
	var r proto.OffenceResult
	others := d.beside(g, c, func() { d.ask(c, g, proto.CmdFault, proto.OffenceArgs{Seed: 5}, &r) })
	c.want(r.Killed == (r.Expected == "killed"), "the channel should be %s; killed: %v", r.Expected, r.Killed)
	c.want(r.FreshWorks, "a new channel does not work afterwards")
	c.want(r.Background.Copies > 0 && r.Background.Wrong == 0, "%d of %d copies of another process were wrong", r.Background.Wrong, r.Background.Copies)
	if !d.passThrough {
		d.onlyOf(c, g, "mmu_faults", before)
	}
	c.detail = fmt.Sprintf("%s's channel %d killed, no other%s", g.name, r.Channel, others)
}

// The register that moves the processor's window to VRAM, in units of 64 KiB, and the
// window.
const (
	regWindow = 0x001700
	window    = 0x700000
)

// outOfBounds points the first guest's window past the end of its memory, where another
// guest's memory may be. The window must read as ones where it is trapped or as zeros where
// it is mapped, and the server must count and log it.
func (d *demo) outOfBounds(g *guest, c *check) {
	before := d.counts(c, "bad_window")
	var old, r proto.RegistersResult
	d.ask(c, g, proto.CmdRegisters, proto.RegistersArgs{Accesses: []proto.RegisterAccess{{Offset: regWindow}}}, &old)
	if len(old.Values) != 1 {
		c.fail("register %06x cannot be read", regWindow)
		return
	}
	behind := uint32(gpuVRAM >> 16)
	d.ask(c, g, proto.CmdRegisters, proto.RegistersArgs{Accesses: []proto.RegisterAccess{
		{Offset: regWindow, Write: &behind}, {Offset: window}, {Offset: regWindow, Write: &old.Values[0]},
	}}, &r)
	c.want(len(r.Values) == 1 && (r.Values[0] == 0 || r.Values[0] == ^uint32(0)), "%s reads %x past its memory, want zeros or ones", g.name, r.Values)
	d.onlyOf(c, g, "bad_window", before)
	d.await(c, "the server did not log it", func() bool {
		for l := range strings.Lines(d.server.Log()) {
			if strings.Contains(l, "bad_window") && strings.Contains(l, "gpu="+g.name) {
				return true
			}
		}
		return false
	})
	c.detail = g.name + " reads no data past its memory; the server counts and logs it"
}

// counts are one count of each guest.
func (d *demo) counts(c *check, name string) map[string]uint64 {
	out := map[string]uint64{}
	for _, g := range d.status(c).GPUs {
		out[g.Name] = g.Count(name)
	}
	return out
}

// onlyOf fails unless a count grew for one guest and for no other.
func (d *demo) onlyOf(c *check, g *guest, name string, before map[string]uint64) {
	for other, n := range d.counts(c, name) {
		c.want((n > before[other]) == (other == g.name), "the server counts %d %s of %s, %d before", n, name, other, before[other])
	}
}

func (d *demo) status(c *check) api.Status {
	s, err := d.server.Status(d.ctx)
	c.want(err == nil, "%v", err)
	return s
}

// openCL runs a program that checks its result. It compiles its kernel for the GPU first.
func (d *demo) openCL(g *guest, c *check) {
	var r proto.RunResult
	d.ask(c, g, proto.CmdRun, proto.RunArgs{Argv: []string{"primes", "10000"}, TimeoutMS: 120_000}, &r)
	c.detail = strings.TrimSpace(r.Output)
}

// registers fails if a guest accessed a register that its GPU does not declare.
func (d *demo) registers(_ *guest, c *check) {
	r, err := d.server.Report(d.ctx)
	c.want(err == nil, "%v", err)
	var n uint64
	for _, g := range r.GPUs {
		c.want(len(g.Registers.Missed.Holes) == 0, "%s accessed undeclared registers: %+v", g.Name, g.Registers.Missed.Holes)
		n += g.Registers.Reads + g.Registers.Writes
	}
	c.want(n > 0, "no access was counted")
	c.detail = digits(n) + " accesses, all to declared registers"
}

// powerCut kills the last guest's QEMU while it copies.
func (d *demo) powerCut(_ *guest, c *check) {
	g := d.last()
	d.load(g, c) // the power cut ends it
	others := d.beside(g, c, func() {
		g.vm.Kill()
		d.awaitDetached(c, g)
	})
	c.detail = fmt.Sprintf("%s's QEMU killed while it copied%s", g.name, others)
}

func (d *demo) awaitDetached(c *check, g *guest) {
	d.await(c, "the server still counts "+g.name+" as attached", func() bool {
		s, err := d.server.Status(d.ctx)
		return err == nil && !s.GPUs[g.name[0]-'a'].Attached
	})
}

// await waits until the server shows something.
func (d *demo) await(c *check, problem string, ok func() bool) {
	for end := time.Now().Add(settle); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || d.ctx.Err() != nil {
			c.fail("%s", problem)
			return
		}
	}
}

// powerOff shuts the remaining guests down.
func (d *demo) powerOff(_ *guest, c *check) {
	left := d.guests
	if !d.passThrough {
		left = left[:len(left)-1]
	}
	for _, g := range left {
		if err := g.vm.Poweroff(d.ctx); err != nil {
			c.fail("%s: %v", g.name, err)
		}
		d.awaitDetached(c, g)
	}
	c.detail = "nouveau released the GPU, and QEMU ended by itself"
}

// stopServer reads the server's counts and ends it.
func (d *demo) stopServer(_ *guest, c *check) {
	d.totals = [][]string{{"guest", "Linux", "right copies", "verified", "traps", "interrupts", "GPU faults", "rules broken"}}
	s := d.status(c)
	for i, g := range d.guests {
		gpu := s.GPUs[i]
		d.totals = append(d.totals, []string{g.name, g.release, digits(g.copies), size(g.bytes()), digits(gpu.Traps),
			digits(gpu.Interrupts), digits(gpu.Count("mmu_faults")), digits(gpu.Broken())})
	}
	if err := d.server.Stop(d.ctx); err != nil {
		c.fail("%v", err)
	}
	c.detail = "ended by SIGTERM, sockets removed"
}

// closeGuests ends the machines that still run.
func (d *demo) closeGuests() error {
	var errs []error
	for _, g := range d.guests {
		if g.vm != nil {
			errs = append(errs, g.vm.Close())
		}
	}
	return errors.Join(errs...)
}
