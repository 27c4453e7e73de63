package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// vramBytes of the demonstration's card.
const vramBytes = 512 << 20

// patience ends a run that hangs.
const patience = 10 * time.Minute

// show does all of it. It always returns a result; what went wrong is in it.
func show(ctx context.Context, o options, p *printer) *result {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	r := &result{VRAM: vramBytes, Control: o.disableEngines}
	began := time.Now()
	if err := perform(ctx, o, p, r); err != nil {
		r.Error = err.Error()
	}
	r.Phases = append(r.Phases, phase{Name: "all", Wall: time.Since(began)})
	r.judge()
	return r
}

// judge decides: every check was made and held, and nothing else went wrong.
func (r *result) judge() {
	r.OK = r.Error == "" && len(r.Checks) > 0
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
}

func perform(ctx context.Context, o options, p *printer, r *result) (err error) {
	at := time.Now()
	if _, err := lab.Ensure(ctx, p.progress(), o.kernel); err != nil {
		return err
	}
	r.Phases = append(r.Phases, phase{Name: "fetch what is missing, build the guest", Wall: time.Since(at)})

	at = time.Now()
	var celsius atomic.Int64
	celsius.Store(firstCelsius)
	var device *counted
	s, err := stand.New(stand.Config{
		Card: soft.Config{
			VRAM: vramBytes, DisableEngines: o.disableEngines,
			Temperature: func() int { return int(celsius.Load()) },
		},
		Device: func(c *soft.Card) vfiouser.Device {
			device = &counted{Device: serve.NewPassThrough(c)}
			return device
		},
		Machine: lab.Config{Kernel: o.kernel, Progress: p.progress()},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.waiting("boot")
	if err := s.Boot(ctx); err != nil {
		r.Checks = append(r.Checks, check{Name: "boot", Took: time.Since(at), Problems: []string{"the guest did not come up"}})
		return err
	}
	r.Kernel, r.QEMU = s.VM.Kernel(), s.VM.QEMUVersion()
	r.Accel, r.AccelWhy = s.VM.Accel().Name, s.VM.Accel().Reason
	r.Phases = append(r.Phases, phase{Name: "card and machine up, Debian booted", Wall: time.Since(at)})
	p.head(r)

	d := &demo{
		ctx: ctx, guest: s.VM.Agent(), res: r, p: p,
		count: func() counters { return read(s.Card.Stats()) },
		heat:  func(degrees int64) { celsius.Store(degrees) },
	}
	d.kernel, d.known = kernelOf(r.Kernel)
	start := d.count()
	at = time.Now()
	whole := d.all()
	r.Phases = append(r.Phases, phase{Name: "the GPU at work", Wall: time.Since(at) - d.probeWall})
	if whole {
		at = time.Now()
		d.check("poweroff", func(c *check) { d.poweroff(c, s) })
		r.Phases = append(r.Phases, phase{Name: "poweroff", Wall: time.Since(at), Guest: d.offGuest})
	} else {
		r.Log = strings.Split(s.VM.Diagnosis(), "\n")
	}

	w := d.count().since(start)
	r.Fences.Doorbells, r.Fences.Released, r.Fences.Waited = w.doorbells, w.releases, w.acquireWaits
	r.IRQ.Raised, r.IRQ.NonStall = w.interrupts, w.nonStall
	r.IRQ.Signalled = s.Server.Stats().IRQ.Signalled
	r.Regions = device.traps()
	registers, err := s.Card.Registers().Report(mmio.ByTime)
	if err != nil {
		return err
	}
	for _, b := range registers.Blocks {
		r.Blocks = append(r.Blocks, traps{b.Name, b.Reads, b.Writes, b.Time})
	}
	m := registers.Missed
	r.Unknown = m.HoleReads + m.HoleWrites + m.Outside
	d.check("registers", func(c *check) {
		c.want(registers.Reads+registers.Writes > 0, "the card counted no register access")
		c.want(r.Unknown == 0, "%d accesses to registers that the card does not declare: %+v", r.Unknown, m.Holes)
		c.Detail = fmt.Sprintf("%s accesses, each to a declared register", digits(registers.Reads+registers.Writes))
	})
	return nil
}

// guest is the program in the virtual machine.
type guest interface {
	Call(ctx context.Context, cmd string, args, result any) error
}

// demo is a run: a guest to ask, a card to watch.
type demo struct {
	ctx   context.Context
	guest guest
	count func() counters
	heat  func(celsius int64)
	res   *result
	p     *printer

	kernel kernel
	known  bool // the kernel has a row

	probeWall, offGuest time.Duration
}

// check makes one check and says what came of it.
func (d *demo) check(name string, f func(c *check)) bool {
	c := check{Name: name}
	d.p.waiting(name)
	began := time.Now()
	f(&c)
	c.Took = time.Since(began)
	c.OK = len(c.Problems) == 0
	d.res.Checks = append(d.res.Checks, c)
	d.p.check(&c)
	return c.OK
}

// call asks the guest. What it says is a problem of the check.
func (d *demo) call(c *check, cmd string, args, result any) {
	if err := d.guest.Call(d.ctx, cmd, args, result); err != nil {
		var refused *lab.CallError
		if errors.As(err, &refused) {
			c.fail("the guest says: %s", refused.Message)
			return
		}
		c.fail("%v", err)
	}
}

// during is call, with what the card counted meanwhile.
func (d *demo) during(c *check, cmd string, args, result any) counters {
	before := d.count()
	d.call(c, cmd, args, result)
	return d.count().since(before)
}

// log is what the guest's kernel said after a mark.
func (d *demo) log(c *check, mark uint64) []lab.LogLine {
	var out []lab.LogLine
	args := proto.KmsgArgs{AfterSeq: &mark}
	for {
		var k proto.KmsgResult
		d.call(c, proto.CmdKmsg, args, &k)
		for _, l := range k.Records {
			out = append(out, lab.LogLine{
				Level: lab.Level(l.Level), Facility: l.Facility,
				Time: time.Duration(l.USec) * time.Microsecond, Text: l.Text,
			})
		}
		if !k.More || len(k.Records) == 0 {
			return out
		}
		args.AfterSeq = &k.Records[len(k.Records)-1].Seq
	}
}

// poweroff wants the guest to shut down in good order and QEMU to end by itself.
func (d *demo) poweroff(c *check, s *stand.Stand) {
	var err error
	if d.offGuest, err = s.Poweroff(d.ctx); err != nil {
		c.fail("%v", err)
	}
	c.Detail = "nouveau let go of the card, and QEMU ended by itself"
}
