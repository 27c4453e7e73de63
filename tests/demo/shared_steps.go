package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// A step is a check of every guest, made at the same time, or one of the whole.
type step struct {
	name string
	each bool // of every guest: "boot a", "boot b"
	need bool // nothing is tried after it if it fails
	do   func(d *crowd, t *tenant, c *check)
}

// sharedSteps are the checks in order. The first guest reboots and reaches out of
// its memory, the last one makes a fault and loses its power.
var sharedSteps = []step{
	{"serve", false, true, (*crowd).serves},
	{"boot", true, true, (*crowd).boots},
	{"probe", true, true, (*crowd).probes},
	{"copies", true, false, nil}, // set below: all of them begin and end together
	{"card's count", false, false, (*crowd).cardAgrees},
	{"reboot", false, false, (*crowd).reboots},
	{"GPU fault", false, false, (*crowd).faults},
	{"out of bounds", false, false, (*crowd).outOfBounds},
	{"status", false, false, (*crowd).status},
	{"registers", false, false, (*crowd).registers},
	{"power cut", false, false, (*crowd).powerCut},
	{"poweroff", false, false, (*crowd).poweroff},
	{"server's end", false, false, (*crowd).ends},
}

// names of the checks that a step makes.
func (d *crowd) names(s step) []string {
	if !s.each {
		return []string{s.name}
	}
	var names []string
	for _, t := range d.guests {
		names = append(names, s.name+" "+t.Name)
	}
	return names
}

// all makes the checks. It is false if there was no trying all of them, because one
// failed that the others need or because a guest went when it should not.
func (d *crowd) all() bool {
	whole := true
	for _, s := range sharedSteps {
		names := d.names(s)
		if !whole {
			d.notRun(names...)
			continue
		}
		do := func(i int, c *check) { s.do(d, d.guests[i], c) }
		if s.do == nil {
			do = d.copies()
		}
		began := time.Now()
		held := d.together(names, do)
		if s.each || s.need {
			d.res.Phases = append(d.res.Phases, phase{Name: s.name, Wall: time.Since(began)})
		}
		whole = held || !s.need && d.alive()
	}
	return whole
}

// alive tells whether all guests answer that should be there.
func (d *crowd) alive() bool {
	for _, t := range d.guests {
		if !t.gone && t.Call(d.ctx, proto.CmdPing, nil, nil) != nil {
			return false
		}
	}
	return true
}

func (d *crowd) first() *tenant { return d.guests[0] }
func (d *crowd) last() *tenant  { return d.guests[len(d.guests)-1] }

// serves wants the server to have a GPU for each guest, and nobody on it.
func (d *crowd) serves(_ *tenant, c *check) {
	s, err := d.server.Status(d.ctx)
	if err != nil {
		c.fail("%v", err)
		return
	}
	c.want(s.Setup == api.SetupVirtual, "the set-up is %q, want %q", s.Setup, api.SetupVirtual)
	c.want(len(s.GPUs) == len(d.guests), "there are %d virtual GPUs, want %d", len(s.GPUs), len(d.guests))
	for _, g := range s.GPUs {
		c.want(!g.Attached, "somebody is on GPU %s already", g.Name)
	}
	c.Detail = fmt.Sprintf("process %d, %d virtual GPUs on one card", s.PID, len(s.GPUs))
}

func (d *crowd) boots(t *tenant, c *check) {
	at := time.Now()
	m, err := d.boot(t)
	if err != nil {
		c.fail("the guest did not come up: %v", err)
		return
	}
	t.machine, t.Boot = m, time.Since(at)
	c.Detail = "Linux " + t.Kernel + ", as Debian ships it"
	if !t.kernel.known {
		c.Detail = "Linux " + t.Kernel
	}
}

func (d *crowd) probes(t *tenant, c *check) {
	r := d.probe(c, t, t.kernel)
	t.Probe = r.wall
	c.Detail = fmt.Sprintf("card0 and renderD128, %s, moves buffers by %s, log clean", r.irq, r.mover)
	if !t.kernel.known {
		c.Detail = strings.TrimSuffix(c.Detail, " clean") + " not judged"
	}
}

// copies returns the checks of all guests: each has a client that copies on and on,
// from before the first of the suites until after the last of them, so that they
// are at it at the same time.
func (d *crowd) copies() func(i int, c *check) {
	var begun, done sync.WaitGroup
	begun.Add(len(d.guests))
	done.Add(len(d.guests))
	return func(i int, c *check) {
		t := d.guests[i]
		stop := d.load(c, t)
		begun.Done()
		begun.Wait()
		at := time.Now()
		before := t.Copies
		kinds := uint64(0)
		for _, cmd := range []string{proto.CmdM2MF, proto.CmdCE} {
			v := d.copySuite(c, t, cmd, proto.CopyArgs{Seed: uint64(1 + i), Quick: true})
			t.add(v)
			kinds += v.copies
		}
		select {
		case <-time.After(d.least - time.Since(at)):
		case <-d.ctx.Done():
		}
		done.Done()
		done.Wait()
		stop()
		c.Detail = fmt.Sprintf("%s copies of %d kinds, %s, beside the others': all right", digits(t.Copies-before), kinds, size(t.Verified))
	}
}

// cardAgrees wants the card to have moved at least what the guests found right.
func (d *crowd) cardAgrees(_ *tenant, c *check) {
	d.count(c)
	var sum uint64
	for _, m := range movers {
		class := fmt.Sprintf("%04x", m.class)
		moved, verified := d.res.Moved[class], d.res.Verified[class]
		c.want(verified > 0, "no guest verified a byte by %s", m.name)
		c.want(moved >= verified, "the guests verified %d bytes by %s, but the card's %s moved %d", verified, m.name, class, moved)
		sum += moved
		for _, t := range d.guests {
			c.want(t.Moved[class] >= t.verified[m.engine], "%s verified %d bytes by %s, but the card moved %d for it",
				t.Name, t.verified[m.engine], m.name, t.Moved[class])
		}
	}
	c.Detail = fmt.Sprintf("%s moved: for each guest, by each class, what it verified", size(sum))
}

// count takes the server's report into the result.
func (d *crowd) count(c *check) {
	r, err := d.server.Report(d.ctx)
	if err != nil {
		c.fail("%v", err)
	}
	d.res.Moved, d.res.Copies, d.res.Verified = map[string]uint64{}, 0, map[string]uint64{}
	for _, k := range r.Card.Classes {
		d.res.Moved[k.Class] = k.Bytes
		d.res.Copies += k.Copies
	}
	for _, t := range d.guests {
		for _, m := range movers {
			d.res.Verified[fmt.Sprintf("%04x", m.class)] += t.verified[m.engine]
		}
	}
	for _, g := range r.GPUs {
		c.want(g.Clients.Panics == 0, "the device of %s panicked %d times", g.Name, g.Clients.Panics)
		for _, t := range d.guests {
			if t.Name != g.Name {
				continue
			}
			t.Moved = map[string]uint64{}
			for _, k := range g.Work {
				t.Moved[k.Class] = k.Bytes
			}
			t.Traps, t.IRQs = 0, g.Interrupts.Signalled
			for _, k := range g.Regions {
				t.Traps += k.Reads + k.Writes
			}
			t.Done, t.Broken = map[string]uint64{}, map[string]uint64{}
			for _, k := range g.Counts {
				if k.Rule {
					t.Broken[k.Name] = k.N
				} else {
					t.Done[k.Name] = k.N
				}
			}
		}
	}
}

// reboots has the first guest reboot in good order, probe and copy again, while
// the others copy.
func (d *crowd) reboots(_ *tenant, c *check) {
	t := d.first()
	n := d.beside(c, t, func() {
		if err := t.Reboot(d.ctx); err != nil {
			c.fail("%v", err)
			return
		}
		d.probe(c, t, t.kernel)
		t.add(d.copySuite(c, t, proto.CmdM2MF, proto.CopyArgs{Seed: 5, Quick: true}))
	})
	c.Detail = fmt.Sprintf("%s rebooted, probed, copied; %s copies of others all right", t.Name, digits(n))
}

// faults has the last guest read where nothing is mapped. It must lose that
// channel, and nobody else anything.
func (d *crowd) faults(_ *tenant, c *check) {
	t := d.last()
	before := d.counts(c)
	var r proto.OffenceResult
	n := d.beside(c, t, func() { d.ask(c, t, proto.CmdFault, proto.OffenceArgs{Seed: 5}, &r) })
	c.want(r.Killed == (r.Expected == "killed"), "the channel should be %s; killed: %v", r.Expected, r.Killed)
	c.want(r.FreshWorks, "a new channel does not work afterwards")
	d.only(c, t, "mmu_faults", before, d.counts(c))
	c.Detail = fmt.Sprintf("%s's channel %d killed; %s copies of others all right", t.Name, r.Channel, digits(n))
}

// The window through which the processor sees VRAM, and the register that says
// where it begins, in units of 64 KiB.
const (
	pramin        = 0x700000
	regBAR0Window = 0x001700
)

// outOfBounds has the first guest point that window behind the end of its memory,
// where other guests' may be. It must read nothing, which is ones where accesses trap
// and zeros in memory that QEMU has mapped, and be told of.
func (d *crowd) outOfBounds(_ *tenant, c *check) {
	t := d.first()
	before := d.counts(c)
	var old, r proto.RegistersResult
	d.ask(c, t, proto.CmdRegisters, proto.RegistersArgs{Accesses: []proto.RegisterAccess{{Offset: regBAR0Window}}}, &old)
	if len(old.Values) != 1 {
		c.fail("register %06x cannot be read", regBAR0Window)
		return
	}
	behind := uint32(gpuVRAM >> 16)
	d.ask(c, t, proto.CmdRegisters, proto.RegistersArgs{Accesses: []proto.RegisterAccess{
		{Offset: regBAR0Window, Write: &behind}, {Offset: pramin}, {Offset: regBAR0Window, Write: &old.Values[0]},
	}}, &r)
	c.want(len(r.Values) == 1 && (r.Values[0] == 0 || r.Values[0] == ^uint32(0)), "behind the end of its memory %s reads %x, want zeros or ones", t.Name, r.Values)
	d.only(c, t, "bad_window", before, d.counts(c))
	d.res.LogLine = d.logged(c, "guest broke a rule", "gpu="+t.Name, "rule=bad_window")
	c.Detail = fmt.Sprintf("%s looks behind its VRAM: reads nothing, is counted and logged", t.Name)
}

// logged waits for a line of the server's log that has all these words.
func (d *crowd) logged(c *check, words ...string) string {
	for end := time.Now().Add(d.settle); ; {
		log, err := d.server.Log()
		if err != nil {
			c.fail("%v", err)
			return ""
		}
	lines:
		for l := range strings.Lines(log) {
			for _, w := range words {
				if !strings.Contains(l, w) {
					continue lines
				}
			}
			return strings.TrimSpace(l)
		}
		if time.Now().After(end) {
			c.fail("the server's log has no line with %s", strings.Join(words, ", "))
			return ""
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// status wants umbra status to show every guest.
func (d *crowd) status(_ *tenant, c *check) {
	var err error
	if d.res.Status, err = d.server.Command(d.ctx, "status"); err != nil {
		c.fail("%v", err)
	}
	attached := 0
	for l := range strings.Lines(d.res.Status) {
		if strings.Contains(l, " attached ") {
			attached++
		}
	}
	c.want(attached == len(d.guests), "umbra status shows %d attached, want %d", attached, len(d.guests))
	c.Detail = fmt.Sprintf("all %d attached; below is what it prints", attached)
}

// registers wants every register that guests touched to be a declared one.
func (d *crowd) registers(_ *tenant, c *check) {
	var err error
	if d.res.Registers, err = d.server.Command(d.ctx, "regs", "--touched", "--gpu", d.first().Name); err != nil {
		c.fail("%v", err)
	}
	var sum uint64
	for _, t := range d.guests {
		table, err := d.server.Registers(d.ctx, t.Name)
		if err != nil {
			c.fail("%v", err)
		}
		var n uint64
		for _, r := range table.Rows {
			n += r.Reads + r.Writes
		}
		c.want(n > 0, "no access of %s was counted", t.Name)
		c.want(len(table.Unlisted) == 0, "%s touched registers that are not declared: %+v", t.Name, table.Unlisted)
		sum += n
	}
	c.Detail = fmt.Sprintf("%s accesses, each to a declared register", digits(sum))
}

// powerCut kills the last guest's QEMU while it copies. The server must notice, and
// the others copy on.
func (d *crowd) powerCut(_ *tenant, c *check) {
	t := d.last()
	d.load(c, t) // and never stopped: its end is what this is about
	n := d.beside(c, t, func() {
		t.gone = true
		t.Kill()
		d.awaitGone(c, t)
	})
	c.Detail = fmt.Sprintf("%s's QEMU killed while it copied; %s copies of others all right", t.Name, digits(n))
}

// awaitGone waits until the server knows that a guest has gone.
func (d *crowd) awaitGone(c *check, t *tenant) {
	for end := time.Now().Add(d.settle); ; time.Sleep(20 * time.Millisecond) {
		s, err := d.server.Status(d.ctx)
		if err != nil {
			c.fail("%v", err)
			return
		}
		for _, g := range s.GPUs {
			if g.Name == t.Name && !g.Attached {
				return
			}
		}
		if time.Now().After(end) {
			c.fail("the server still thinks that %s is there", t.Name)
			return
		}
	}
}

// poweroff wants those that are left to shut down in good order.
func (d *crowd) poweroff(_ *tenant, c *check) {
	left := d.guests[:len(d.guests)-1]
	problems := make([]error, len(left))
	var all sync.WaitGroup
	for i, t := range left {
		t.gone = true
		all.Go(func() { problems[i] = t.Poweroff(d.ctx) })
	}
	all.Wait()
	for i, err := range problems {
		c.want(err == nil, "%s: %v", left[i].Name, err)
		d.awaitGone(c, left[i])
	}
	c.Detail = "nouveau let go of its GPU, and QEMU ended by itself"
}

// ends takes the last figures and ends the server.
func (d *crowd) ends(_ *tenant, c *check) {
	d.count(c)
	if err := d.server.Stop(d.ctx); err != nil {
		c.fail("%v", err)
	}
	c.Detail = "on SIGTERM, in good order; its sockets are gone"
}
