package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// sharedVRAM of the card, and of each of the virtual GPUs on it.
const (
	sharedVRAM = 1 << 30
	gpuVRAM    = 128 << 20
	// maxGuests have room on the card beside their page tables.
	maxGuests = 6
)

// sharedResult is all that came of a run with virtual GPUs.
type sharedResult struct {
	outcome
	Config    string            `json:"config"` // the file that the server was given
	Guests    []*guestResult    `json:"guests"`
	Verified  map[string]uint64 `json:"verified_bytes"` // by all guests, by class
	Moved     map[string]uint64 `json:"moved_bytes"`    // by the card, by class
	Copies    uint64            `json:"copies"`         // that the card was asked for
	Status    string            `json:"status_text"`    // what umbra status printed
	Registers string            `json:"regs_text"`      // what umbra regs --touched printed, for the first guest
	LogLine   string            `json:"log_line"`       // the server's, of the rule that was broken
}

// guestResult is what came of one guest.
type guestResult struct {
	Name     string            `json:"name"`
	Asked    string            `json:"-"` // the version
	Kernel   string            `json:"kernel"`
	Boot     time.Duration     `json:"boot_ns"`
	Probe    time.Duration     `json:"probe_ns"`
	Copies   uint64            `json:"copies"` // verified by the guest
	Verified uint64            `json:"verified_bytes"`
	Moved    map[string]uint64 `json:"moved_bytes"` // by the card, for this guest, by class
	Traps    uint64            `json:"traps"`
	IRQs     uint64            `json:"interrupts"`
	Done     map[string]uint64 `json:"counts"`       // what it asked for
	Broken   map[string]uint64 `json:"rules_broken"` // every rule
}

// machine is a virtual machine with its guest.
type machine interface {
	guest
	Reboot(ctx context.Context) error
	Poweroff(ctx context.Context) error
	Kill()
}

// labMachine is one of the lab's.
type labMachine struct{ *lab.VM }

func (m labMachine) Call(ctx context.Context, cmd string, args, result any) error {
	return m.Agent().Call(ctx, cmd, args, result)
}

// tenant is a guest in the run.
type tenant struct {
	*guestResult
	machine
	kernel subject

	gone bool // it has been killed or powered off

	verified map[string]uint64 // by engine
}

// add notes what came out right.
func (t *tenant) add(v verified) {
	for engine, n := range v.bytes {
		t.verified[engine] += n
		t.Verified += n
	}
	t.Copies += v.copies
}

// crowd is a run with several guests on one card.
type crowd struct {
	stage
	res    *sharedResult
	server server
	guests []*tenant
	// boot starts a guest's machine and waits until it is up.
	boot func(t *tenant) (machine, error)
	// least is how long all guests copy at the same time, at least.
	least time.Duration
	// settle is how long is waited for what the server notices by itself.
	settle time.Duration
}

// showShared gives several guests a virtual GPU each. It always returns a result;
// what went wrong is in it.
func showShared(ctx context.Context, o options, p *printer) *sharedResult {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	r := &sharedResult{outcome: outcome{Setup: setupVirtual, Control: o.disableEngines}}
	began := time.Now()
	err := shared(ctx, o, p, r)
	r.Phases = append(r.Phases, phase{Name: "all", Wall: time.Since(began)})
	r.end(ctx, err)
	return r
}

func shared(ctx context.Context, o options, p *printer, r *sharedResult) (err error) {
	at := time.Now()
	assets, err := fetchAll(ctx, p, o.kernels)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "umbra-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bin := o.umbra
	if bin == "" {
		p.say("building umbra ...")
		if bin, err = buildUmbra(ctx, dir); err != nil {
			return err
		}
	}
	r.Phases = append(r.Phases, phase{Name: "fetch and build what is missing", Wall: time.Since(at)})

	d := &crowd{stage: stage{ctx, p, &r.outcome}, res: r, least: 2 * time.Second, settle: 10 * time.Second}
	for i, a := range assets {
		t := &tenant{guestResult: &guestResult{Name: string(rune('a' + i)), Asked: o.kernels[i], Kernel: a.Kernel.Release}}
		t.verified, t.kernel = map[string]uint64{}, subjectOf(a.Kernel.Release)
		d.guests = append(d.guests, t)
		r.Guests = append(r.Guests, t.guestResult)
		r.QEMU = a.QEMU.Version
	}
	r.Config = yaml(r.Guests, !o.disableEngines)
	if err := os.WriteFile(filepath.Join(dir, configFile), []byte(r.Config), 0o644); err != nil {
		return err
	}
	p.sharedHead(r)

	s, err := startServer(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer s.kill()
	d.server = s
	machines := make([]*lab.VM, len(d.guests))
	d.boot = func(t *tenant) (machine, error) {
		vm, err := lab.Start(ctx, lab.Config{
			Kernel: t.Asked, Sockets: []string{filepath.Join(dir, t.Name+".sock")}, CPUs: 1, Memory: 512, Reboot: true, Progress: p.progress(),
		})
		if err != nil {
			return nil, err
		}
		machines[t.Name[0]-'a'] = vm
		return labMachine{vm}, nil
	}
	whole := d.all()
	for _, vm := range machines {
		if vm == nil {
			continue
		}
		r.Accel, r.AccelWhy = vm.Accel().Name, vm.Accel().Reason
		if !whole {
			r.Log = append(r.Log, strings.Split(vm.Diagnosis(), "\n")...)
		}
		err = errors.Join(err, vm.Close())
	}
	if log, lerr := s.Log(); !whole && lerr == nil {
		r.Log = append(append(r.Log, "umbra serve logged:"), strings.Split(strings.TrimSpace(log), "\n")...)
	}
	return err
}

// fetchAll fetches and builds what machines with these kernels need.
func fetchAll(ctx context.Context, p *printer, kernels []string) ([]lab.Assets, error) {
	p.say("looking for QEMU and kernels, fetching what is missing ...")
	assets, err := lab.Ensure(ctx, p.progress(), kernels...)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range assets {
		names = append(names, "Linux "+a.Kernel.Release)
	}
	p.say("QEMU %s and %s are there", assets[0].QEMU.Version, strings.Join(names, ", "))
	return assets, nil
}

// yaml is the configuration of a card with a virtual GPU for each guest.
func yaml(guests []*guestResult, engines bool) string {
	var b strings.Builder
	card := fmt.Sprintf("{kind: soft, vram: %dGiB}", sharedVRAM>>30)
	if !engines {
		card = fmt.Sprintf("{kind: soft, vram: %dGiB, engines: false}", sharedVRAM>>30)
	}
	fmt.Fprintf(&b, "control: %s\ncard: %s\ngpus:\n", controlSocket, card)
	for _, g := range guests {
		fmt.Fprintf(&b, "  - {name: %s, socket: %s.sock, vram: %dMiB}\n", g.Name, g.Name, gpuVRAM>>20)
	}
	return b.String()
}

// load has a guest copy and verify until the function that it returns is called,
// which wants all copies to have been right.
func (d *crowd) load(c *check, t *tenant) (stop func()) {
	failed := len(c.Problems)
	d.ask(c, t, proto.CmdLoad, proto.LoadArgs{Bytes: loadBytes}, nil)
	if len(c.Problems) > failed {
		return func() {} // nothing runs
	}
	return func() {
		var r proto.LoadTotals
		d.ask(c, t, proto.CmdLoadStop, nil, &r)
		c.want(r.Copies > 0 && r.Wrong == 0 && r.Error == "", "of %s's %d copies %d came out wrong %s", t.Name, r.Copies, r.Wrong, r.Error)
		t.add(verified{map[string]uint64{"m2mf": r.Bytes}, r.Copies})
	}
}

// loadBytes is the size of a copy.
const loadBytes = 64 << 10

// beside does something while all other guests copy. It returns how many of their
// copies came out right meanwhile.
func (d *crowd) beside(c *check, t *tenant, f func()) uint64 {
	others := func() (n uint64) {
		for _, o := range d.guests {
			if o != t {
				n += o.Copies
			}
		}
		return n
	}
	before := others()
	var stops []func()
	for _, o := range d.guests {
		if o != t {
			stops = append(stops, d.load(c, o))
		}
	}
	f()
	for _, stop := range stops {
		stop()
	}
	n := others() - before
	c.want(n > 0, "no other guest copied meanwhile")
	return n
}

// counts are the server's counts of each guest, by name.
func (d *crowd) counts(c *check) map[string]map[string]uint64 {
	out := map[string]map[string]uint64{}
	s, err := d.server.Status(d.ctx)
	if err != nil {
		c.fail("%v", err)
	}
	for _, t := range d.guests {
		out[t.Name] = map[string]uint64{}
	}
	for _, g := range s.GPUs {
		for _, k := range g.Counts {
			out[g.Name][k.Name] = k.N
		}
	}
	return out
}

// only wants a count to have grown for one guest, and for no other.
func (d *crowd) only(c *check, t *tenant, name string, before, after map[string]map[string]uint64) {
	c.want(after[t.Name][name] > before[t.Name][name], "the server counted no %s of %s", name, t.Name)
	for _, o := range d.guests {
		if o != t {
			c.want(after[o.Name][name] == before[o.Name][name], "the server counted %s of %s, which is not to blame", name, o.Name)
		}
	}
}
