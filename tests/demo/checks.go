package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// demo is one run. Its methods run on one goroutine, except those of a step for each
// guest, which touch their own guest only.
type demo struct {
	ctx    context.Context
	server *testserver.Process
	guests []*guest

	held   int
	failed []string
	totals string // a table of what the server counted

	begun, suites sync.WaitGroup // of the copies of all guests, which overlap
}

// guest is a machine with what it verified so far.
type guest struct {
	*chip
	name, release string
	kernel        nouveau.Kernel
	machine       lab.Config

	vm       *lab.VM
	copies   uint64
	verified map[string]uint64 // bytes, by class: "9039"
}

func (g *guest) add(engine string, copies, bytes uint64) {
	g.copies += copies
	g.verified[g.classes[engine]] += bytes
}

// bytes is the sum of the verified ones.
func (g *guest) bytes() (n uint64) {
	for _, b := range g.verified {
		n += b
	}
	return n
}

// check is one condition that must hold.
type check struct {
	name, detail string
	problems     []string
}

// want notes a problem unless ok.
func (c *check) want(ok bool, format string, args ...any) {
	if !ok {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func (c *check) none(err error) { c.want(err == nil, "%v", err) }

// steps are the checks in order. Those of one guest use the first guest; the last
// guest makes the fault and loses its power. The run ends if a check fails that others need.
var steps = []struct {
	name             string
	each, need, mesa bool // one for each guest: "boot a", "boot b"; others need it; only in guests with Mesa
	do               func(d *demo, g *guest, c *check)
}{
	{name: "boot", each: true, need: true, do: (*demo).boot},
	{name: "probe", each: true, need: true, do: (*demo).probe},
	{name: "copies", each: true, do: (*demo).copies},
	{name: "card's count", do: (*demo).cardAgrees},
	{name: "reboot", do: (*demo).reboot},
	{name: "GPU fault", do: (*demo).fault},
	{name: "out of bounds", do: (*demo).outOfBounds},
	{each: true, mesa: true, do: (*demo).program},
	{name: "registers", do: (*demo).registers},
	{name: "power cut", do: (*demo).powerCut},
	{name: "power-off", do: (*demo).powerOff},
	{name: "server's end", do: (*demo).stopServer},
}

// all makes the checks. It prints each when it is done.
func (d *demo) all() error {
	d.begun.Add(len(d.guests))
	d.suites.Add(len(d.guests))
	for _, s := range steps {
		guests := d.guests[:1]
		if s.each {
			guests = d.guests
		}
		if s.mesa {
			guests = slices.DeleteFunc(slices.Clone(guests), func(g *guest) bool { return g.machine.Mesa == "" })
		}
		var all sync.WaitGroup
		var mu sync.Mutex // one line at a time
		failed := len(d.failed)
		for _, g := range guests {
			all.Go(func() {
				c, began := &check{name: s.name}, time.Now()
				if s.mesa {
					c.name = g.api
				}
				if s.each {
					c.name += " " + g.name
				}
				s.do(d, g, c)
				mu.Lock()
				defer mu.Unlock()
				d.print(c, time.Since(began))
			})
		}
		all.Wait()
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if s.need && len(d.failed) > failed {
			for _, g := range d.guests {
				if g.vm != nil {
					fmt.Printf("%s: %s\n", g.name, g.vm.Diagnosis())
				}
			}
			return fmt.Errorf("FAILED: %s; the other checks need it", strings.Join(d.failed, ", "))
		}
	}
	fmt.Printf("\n%s\n", d.totals)
	if len(d.failed) > 0 {
		return fmt.Errorf("FAILED: %s; %d other checks held", strings.Join(d.failed, ", "), d.held)
	}
	return nil
}

func (d *demo) print(c *check, took time.Duration) {
	verdict := "ok"
	if len(c.problems) > 0 {
		verdict, c.detail = "FAILED", ""
		d.failed = append(d.failed, c.name)
	} else {
		d.held++
	}
	fmt.Println(strings.TrimRight(fmt.Sprintf("  %-6s  %-14s %6.1f s  %.64s", verdict, c.name, took.Seconds(), c.detail), " "))
	for _, problem := range c.problems[:min(3, len(c.problems))] {
		fmt.Printf("          - %s\n", strings.ReplaceAll(problem, "\n", "\n            "))
	}
}

// ask runs a command in the guest. An error is a problem of the check.
func (d *demo) ask(c *check, g *guest, cmd string, args, result any) {
	c.none(g.vm.Agent().Call(d.ctx, cmd, args, result))
}

func (d *demo) boot(g *guest, c *check) {
	g.machine.Sockets = []string{filepath.Join(d.server.Dir, g.name+".sock")}
	var err error
	g.vm, err = lab.Start(d.ctx, g.machine)
	c.none(err)
	c.detail = "Linux " + g.release + " on a " + g.shows
}

// probe loads nouveau and checks what it makes of the GPU.
func (d *demo) probe(g *guest, c *check) {
	var mark proto.MarkResult
	var dri proto.DRIResult
	d.ask(c, g, proto.CmdMark, nil, &mark)
	d.ask(c, g, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	d.ask(c, g, proto.CmdDRI, nil, &dri)
	log, err := g.vm.KernelLogAfter(d.ctx, mark.Seq)
	c.none(err)
	for _, want := range []string{"card0", "renderD128"} {
		made := func(n proto.DRINode) bool { return filepath.Base(n.Path) == want && n.Driver == "nouveau" }
		c.want(slices.ContainsFunc(dri.Nodes, made), "nouveau made no /dev/dri/%s", want)
	}
	movers := nouveau.Movers(log)
	c.want(len(movers) == 1, "nouveau chose %d engines for buffer moves, want 1", len(movers))
	c.problems = append(c.problems, g.kernel.Problems(log, 1)...)
	c.detail = fmt.Sprintf("/dev/dri/card0, buffers moved by %s, kernel log clean", strings.Join(movers, ","))
}

// suite runs one of the guest program's suites of verified copies.
func (d *demo) suite(g *guest, c *check, cmd string) (kinds int) {
	var r proto.CopyResult
	d.ask(c, g, cmd, proto.CopyArgs{Seed: 1}, &r)
	for _, k := range r.Cases {
		if k.OK {
			engine, _, _ := strings.Cut(k.Name, " ")
			g.add(engine, 1, k.Bytes)
			kinds++
		}
	}
	c.want(len(r.Cases) > 0 && r.Failed == 0, "%d of %d kinds of copies were wrong", r.Failed, len(r.Cases))
	return kinds
}

// load makes a guest copy and verify until stop is called, which returns how many copies were right.
func (d *demo) load(g *guest, c *check) (stop func() uint64) {
	d.ask(c, g, proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
	return func() uint64 {
		var r proto.LoadTotals
		d.ask(c, g, proto.CmdLoadStop, nil, &r)
		c.want(r.Copies > 0 && r.Wrong == 0 && r.Error == "", "%d of %s's %d copies were wrong %s", r.Wrong, g.name, r.Copies, r.Error)
		g.add(g.mover, r.Copies, r.Bytes)
		return r.Copies
	}
}

// beside runs f in one guest while all others copy. It says how many of their copies
// were verified during that.
func (d *demo) beside(g *guest, c *check, f func()) string {
	var stops []func() uint64
	for _, o := range d.guests {
		if o != g {
			stops = append(stops, d.load(o, c))
		}
	}
	f()
	var copies uint64
	for _, stop := range stops {
		copies += stop()
	}
	c.want(copies > 0, "no other guest copied in the meantime")
	return digits(copies) + " right copies by others"
}

// copies makes the checks of all guests. Each has a process that copies from before
// the first suite until after the last one.
func (d *demo) copies(g *guest, c *check) {
	stop := d.load(g, c)
	d.begun.Done()
	d.begun.Wait()
	var kinds int
	for _, suite := range g.suites {
		kinds += d.suite(g, c, suite)
	}
	d.suites.Done()
	d.suites.Wait()
	stop()
	c.detail = fmt.Sprintf("%s copies of %d kinds, %d MiB, all verified", digits(g.copies), kinds, g.bytes()>>20)
}

// cardAgrees compares what each guest verified with what the card did for it.
func (d *demo) cardAgrees(_ *guest, c *check) {
	r, err := d.server.Report(d.ctx)
	if c.none(err); err != nil {
		return
	}
	var sum uint64
	for i, g := range d.guests {
		moved := map[string]uint64{}
		for _, w := range r.GPUs[i].Work {
			moved[w.Class] = w.Bytes
		}
		for _, class := range slices.Compact(slices.Sorted(maps.Values(g.classes))) {
			verified := g.verified[class]
			c.want(verified > 0 && moved[class] >= verified, "%s verified %d bytes by %s, the card moved %d for it", g.name, verified, class, moved[class])
			sum += moved[class]
		}
	}
	c.detail = fmt.Sprintf("%d MiB moved by the engines, no less than verified", sum>>20)
}

func (d *demo) reboot(g *guest, c *check) {
	others := d.beside(g, c, func() {
		c.none(g.vm.Reboot(d.ctx))
		d.probe(g, c)
		d.suite(g, c, g.suites[0])
	})
	c.detail = fmt.Sprintf("%s rebooted, probed and copied; %s", g.name, others)
}

func (d *demo) last() *guest { return d.guests[len(d.guests)-1] }

// fault makes a process of the last guest read unmapped memory. Only that process must lose
// its channel.
func (d *demo) fault(_ *guest, c *check) {
	g := d.last()
	onlyOf := d.onlyOf(c, g, "mmu_faults")
	var r proto.OffenceResult
	others := d.beside(g, c, func() { d.ask(c, g, proto.CmdFault, proto.OffenceArgs{Seed: 5}, &r) })
	c.want(r.Killed == r.Expected, "the channel was killed: %v; it should be: %v", r.Killed, r.Expected)
	c.want(r.FreshWorks, "a new channel does not work afterwards")
	c.want(r.Background.Copies > 0 && r.Background.Wrong == 0, "%d of %d copies of another process were wrong", r.Background.Wrong, r.Background.Copies)
	onlyOf()
	c.detail = fmt.Sprintf("%s's channel %d killed, no other; %s", g.name, r.Channel, others)
}

// window is where the processor sees VRAM, at an address in units of 64 KiB.
const window = 0x700000

// outOfBounds points the first guest's window past the end of its memory, where another
// guest's memory may be. The window must read as ones where it is trapped or as zeros where
// it is mapped, and the server must count and log it.
func (d *demo) outOfBounds(g *guest, c *check) {
	onlyOf := d.onlyOf(c, g, "bad_window")
	access := func(accesses ...proto.RegisterAccess) uint32 {
		var r proto.RegistersResult
		d.ask(c, g, proto.CmdRegisters, proto.RegistersArgs{Accesses: accesses}, &r)
		return append(r.Values, 1)[0] // if it failed, neither zeros nor ones
	}
	old, behind := access(proto.RegisterAccess{Offset: g.window}), uint32(g.vram>>16)
	value := access(
		proto.RegisterAccess{Offset: g.window, Write: &behind}, proto.RegisterAccess{Offset: window}, proto.RegisterAccess{Offset: g.window, Write: &old})
	c.want(value == 0 || value == ^uint32(0), "%s reads %#x past its memory, want zeros or ones", g.name, value)
	onlyOf()
	d.await(c, "the server did not log it", func() bool {
		logged := func(l string) bool { return strings.Contains(l, "bad_window") && strings.Contains(l, "gpu="+g.name) }
		return slices.ContainsFunc(strings.Split(d.server.Log(), "\n"), logged)
	})
	c.detail = g.name + " reads no data past its memory; the server counts and logs it"
}

// onlyOf returns a check that a count grows for one guest and for no other from now on.
func (d *demo) onlyOf(c *check, g *guest, name string) func() {
	before := d.status(c)
	return func() {
		after := d.status(c)
		for i := range before.GPUs {
			b, a := before.GPUs[i].Count(name), after.GPUs[i].Count(name)
			c.want((a > b) == (before.GPUs[i].Name == g.name), "the server counts %d %s of %s, %d before", a, name, before.GPUs[i].Name, b)
		}
	}
}

// status is the server's, of all guests also if it fails.
func (d *demo) status(c *check) api.Status {
	s, err := d.server.Status(d.ctx)
	c.none(err)
	if s.GPUs == nil {
		s.GPUs = make([]api.GPU, len(d.guests))
	}
	return s
}

// program runs one that checks its result. One of OpenCL compiles its kernel for the GPU first.
func (d *demo) program(g *guest, c *check) {
	var r proto.RunResult
	d.ask(c, g, proto.CmdRun, proto.RunArgs{Argv: g.argv, TimeoutMS: 120_000}, &r)
	lines := strings.Split(strings.TrimSpace(r.Output), "\n") // Mesa may warn first
	c.detail = lines[len(lines)-1]
}

// registers fails if a guest accessed a register that its GPU does not declare.
func (d *demo) registers(_ *guest, c *check) {
	r, err := d.server.Report(d.ctx)
	c.none(err)
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
	c.detail = fmt.Sprintf("%s's QEMU killed while it copied; %s", g.name, others)
}

func (d *demo) awaitDetached(c *check, g *guest) {
	d.await(c, "the server still counts "+g.name+" as attached", func() bool {
		s, err := d.server.Status(d.ctx)
		return err == nil && !s.GPUs[g.name[0]-'a'].Attached
	})
}

// await waits up to a minute until the server shows something.
func (d *demo) await(c *check, problem string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || d.ctx.Err() != nil {
			c.want(false, "%s", problem)
			return
		}
	}
}

// powerOff shuts the remaining guests down.
func (d *demo) powerOff(_ *guest, c *check) {
	for _, g := range d.guests[:len(d.guests)-1] {
		c.none(g.vm.Poweroff(d.ctx))
		d.awaitDetached(c, g)
	}
	c.detail = "nouveau released the GPU, and QEMU ended by itself"
}

// stopServer reads the server's counts and ends it.
func (d *demo) stopServer(_ *guest, c *check) {
	const row = "  %-5s  %-20s  %12s  %8s  %7s  %10s  %10s  %12s\n"
	d.totals = fmt.Sprintf(row, "guest", "Linux", "right copies", "verified", "traps", "interrupts", "GPU faults", "rules broken")
	for i, g := range d.guests {
		gpu := d.status(c).GPUs[i]
		d.totals += fmt.Sprintf(row, g.name, g.release, digits(g.copies), fmt.Sprint(g.bytes()>>20, " MiB"), digits(gpu.Traps),
			digits(gpu.Interrupts), digits(gpu.Count("mmu_faults")), digits(gpu.Broken()))
	}
	c.none(d.server.Stop(d.ctx))
	c.detail = "ended by SIGTERM, sockets removed"
}

// digits writes n with a comma before every third digit from the right.
func digits(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
