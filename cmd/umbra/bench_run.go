package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/config"
)

type benchRunCmd struct {
	InProcess bool     `help:"Measure without virtual machines: nothing is fetched and no QEMU is needed."`
	Machines  bool     `help:"Measure in virtual machines only."`
	Quick     *bool    `negatable:"" help:"Small parameters and few turns: to see that it works."`
	Only      []string `placeholder:"SCENARIO" help:"Measure these scenarios; --list says which there are."`
	Setups    []string `name:"setups" placeholder:"NAME" help:"Measure these set-ups; --list says which there are."`
	Repeat    *int     `placeholder:"N" help:"Turns of each measurement in this process (default: 5, quick 3)."`
	Boots     *int     `placeholder:"N" help:"Boots of each virtual machine (default: 2, quick 1)."`
	Kernels   []string `placeholder:"VERSION" help:"Kernels of the virtual machines: 6.1, 6.12, 7.2 (default: 6.12)."`
	List      bool     `help:"List scenarios and set-ups, and measure nothing."`

	benchOutput
}

// benchFiles are what a run writes when nobody says where to.
var benchFiles = []string{"umbra-bench.html", "umbra-bench.json"}

// What is measured when nobody says.
const (
	benchTurns      = 5
	benchQuickTurns = 3
	benchBoots      = 2 // of the default set-ups within eight minutes, on two processors without KVM
)

func (c *benchRunCmd) Run(ctx context.Context, out output) error {
	if c.List {
		if err := refuseBeside("--list", "which measures nothing", c.flags()); err != nil {
			return err
		}
		l := bench.List()
		if c.JSON {
			e := json.NewEncoder(out.stdout)
			e.SetIndent("", "  ")
			return e.Encode(l)
		}
		_, err := fmt.Fprint(out.stdout, l.Text())
		return err
	}
	o := bench.Options{
		Umbra: versionString(), Setups: c.Setups, Only: c.Only, Repeat: benchTurns, Quick: c.Quick != nil && *c.Quick,
		InProcess: c.InProcess, Machines: c.Machines, Boots: benchBoots, Kernels: c.Kernels, Progress: out.stderr,
	}
	if o.Quick {
		o.Repeat, o.Boots = benchQuickTurns, 1
	}
	if c.Repeat != nil { // what is given is taken, or refused, be it 0
		o.Repeat = *c.Repeat
	}
	if c.Boots != nil {
		o.Boots = *c.Boots
	}
	if err := c.checkEffect(&o); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	then, err := c.before()
	if err != nil {
		return err
	}
	if then != nil {
		o.Busy = then.Run.BusyBytes
		if as := c.follow(&o, then); len(as) > 0 {
			fmt.Fprintf(out.stderr, "umbra: as in %s: %s\n", c.VS, strings.Join(as, " "))
		}
		// What cannot be compared in the end need not be measured first.
		foreseen, err := o.Foresee(then)
		if err != nil {
			return &config.Error{Where: "--vs", Value: c.VS, Reason: err.Error()}
		}
		if n, why := foreseen.NoRatios(); n > 0 {
			out.warn([]string{fmt.Sprintf("--vs: %s: %s will have no ratio: %s", c.VS, plural(uint64(n), "result", "results"), why)})
		}
	}
	if err := c.check(); err != nil {
		return err
	}
	if err := o.CheckPlace(); err != nil {
		return err
	}
	if o.UseMachines() {
		if err := checkGiven(ctx, o.Kernels); err != nil {
			return err
		}
	}
	here := report.ThisMachine()
	if hint := here.Busy(); hint != "" { // errors of the command line come before it
		out.warn([]string{hint})
	}
	moreProcessors() // as umbra serve has them
	r, ended := bench.Run(ctx, o)
	if ended != nil && (r == nil || len(r.Results)+len(r.Traps) == 0) {
		return ended
	}
	// A run that was ended has taken its time all the same: what it found is not lost, nor is
	// what a whole one found before it.
	err = c.write(out, r, then, c.names(benchFiles, ended != nil))
	if ended != nil {
		if err != nil { // the end says that it was interrupted, and no more
			fmt.Fprintf(out.stderr, "umbra: %v\n", err)
		}
		return ended
	}
	if err != nil {
		return err
	}
	if n := len(r.Errors); n > 0 {
		return fmt.Errorf("%d of the measurements failed: %s", n, strings.Join(r.Errors, "; "))
	}
	return nil
}

// flag is one that may have been given.
type flag struct {
	name  string
	given bool
}

// Flags by what they are about.
func (c *benchRunCmd) machineFlags() []flag {
	return []flag{{"--boots", c.Boots != nil}, {"--kernels", len(c.Kernels) > 0}}
}

func (c *benchRunCmd) processFlags() []flag { return []flag{{"--repeat", c.Repeat != nil}} }

func (c *benchRunCmd) flags() []flag {
	return slices.Concat([]flag{
		{"--in-process", c.InProcess}, {"--machines", c.Machines}, {"--quick", c.Quick != nil}, {"--only", len(c.Only) > 0}, {"--setups", len(c.Setups) > 0},
	}, c.processFlags(), c.machineFlags(), []flag{{"--vs", c.VS != ""}, {"--out", c.Out != ""}})
}

// refuseBeside refuses flags that have no effect beside another, or for a reason.
func refuseBeside(with, why string, flags []flag) error {
	for _, f := range flags {
		if f.given {
			return &config.Error{Where: f.name, Reason: fmt.Sprintf("has no effect with %s, %s; leave one of them out", with, why)}
		}
	}
	return nil
}

// checkEffect refuses flags of what is not measured.
func (c *benchRunCmd) checkEffect(o *bench.Options) error {
	switch {
	case o.InProcess && o.Machines: // which is refused for itself
		return nil
	case o.InProcess:
		return refuseBeside("--in-process", "which boots nothing", c.machineFlags())
	case !o.UseProcess():
		return refuseBeside("--machines", "which measures each boot once", c.processFlags())
	case !o.UseMachines() && o.Check() == nil:
		return refuseBeside("--only "+strings.Join(o.Only, ","), "which boots nothing", c.machineFlags())
	}
	return nil
}
