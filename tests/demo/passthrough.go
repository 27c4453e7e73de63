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
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// vramBytes of the demonstration's card.
const vramBytes = 512 << 20

// patience ends a run that hangs. A busy machine may take ten times as long as an idle one,
// and a guest that does not come up is noticed long before.
const patience = 40 * time.Minute

// showPassThrough gives one guest a whole card. It always returns a result; what
// went wrong is in it.
func showPassThrough(ctx context.Context, o options, p *printer) *result {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	r := &result{outcome: outcome{Setup: setupPassThrough, Control: o.disableEngines}, VRAM: vramBytes}
	began := time.Now()
	err := passThrough(ctx, o, p, r)
	r.Phases = append(r.Phases, phase{Name: "all", Wall: time.Since(began)})
	r.end(ctx, err)
	return r
}

func passThrough(ctx context.Context, o options, p *printer, r *result) (err error) {
	at := time.Now()
	kernel := o.kernels[0]
	if _, err := fetchAll(ctx, p, o.kernels); err != nil {
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
		Machine: lab.Config{Kernel: kernel, CPUs: subjectOf(kernel).CPUs, Progress: p.progress()},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.say("booting it in QEMU, on a whole card ...")
	if err := s.Boot(ctx); err != nil {
		r.Checks = append(r.Checks, check{Name: "boot", Took: time.Since(at), Problems: []string{"the guest did not come up"}})
		return err
	}
	r.Kernel, r.QEMU = s.VM.Kernel(), s.VM.QEMUVersion()
	r.Accel, r.AccelWhy = s.VM.Accel().Name, s.VM.Accel().Reason
	r.Phases = append(r.Phases, phase{Name: "card and machine up, Debian booted", Wall: time.Since(at)})
	p.head(r)

	d := &demo{
		stage: stage{ctx, p, &r.outcome}, guest: s.VM.Agent(), res: r,
		count: func() counters { return read(s.Card.Stats()) },
		heat:  func(degrees int64) { celsius.Store(degrees) },
	}
	d.kernel = subjectOf(r.Kernel)
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

// demo is a run: a guest to ask, a card to watch.
type demo struct {
	stage
	guest guest
	count func() counters
	heat  func(celsius int64)
	res   *result

	kernel subject

	probeWall, offGuest time.Duration
}

func (d *demo) call(c *check, cmd string, args, result any) { d.ask(c, d.guest, cmd, args, result) }

// during is call, with what the card counted meanwhile.
func (d *demo) during(c *check, cmd string, args, result any) counters {
	before := d.count()
	d.call(c, cmd, args, result)
	return d.count().since(before)
}

// poweroff wants the guest to shut down in good order and QEMU to end by itself.
func (d *demo) poweroff(c *check, s *stand.Stand) {
	var err error
	if d.offGuest, err = s.Poweroff(d.ctx); err != nil {
		c.fail("%v", err)
	}
	c.Detail = "nouveau let go of the card, and QEMU ended by itself"
}
