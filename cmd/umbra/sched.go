package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/simulate"
)

type schedCmd struct {
	Show     schedShowCmd     `cmd:"" help:"Show how a running server shares its card's time, and how much each guest had."`
	Set      schedSetCmd      `cmd:"" help:"Change how a running server shares its card's time while guests run."`
	Simulate schedSimulateCmd `cmd:"" help:"Show how a mix of guests shares a card under each policy, in virtual time."`
}

type schedSimulateCmd struct {
	simulate.Options `embed:""`

	JSON bool `name:"json" help:"Write JSON in place of text."`
	List bool `help:"List presets, parameters and the keys of a guest, and simulate nothing."`
}

func (c *schedSimulateCmd) Run(ctx context.Context, out output) error {
	if c.List {
		_, err := io.WriteString(out.stdout, schedList())
		return err
	}
	plan, err := c.Plan()
	if err != nil {
		return err
	}
	plan.Progress = func(line string) { fmt.Fprintln(out.stderr, line) }
	r, err := simulate.Simulate(ctx, plan)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(out.stdout, r)
	}
	_, err = io.WriteString(out.stdout, simulationText(r))
	return err
}

// maxRows is how many processes of a run the text has.
const maxRows = 16

const simulationLegend = `
share: part of the time that the graphics engine worked for the process
fair: the same on a card that can be divided at will, for the same load: by priority, weight and cap
error: largest difference of the two, in points
Jain: Jain's index of shares over fair shares; 1 is fair
efficiency: part of the time that the graphics engine worked
lag: most time that a process with work was behind or ahead of such a card
latency: from doorbell to end of a request
`

func simulationText(r *simulate.Report) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(r.Name+": "+strings.TrimSpace(r.About), ": ") + "\n")
	if r.Axis != "" {
		head := "policy\tflatness"
		for _, at := range r.At {
			head += fmt.Sprintf("\t%g", at)
		}
		t := newTable(&b, "Runtime of the program by the "+r.Axis, head)
		for i := range r.Runs {
			x := &r.Runs[i]
			row := fmt.Sprintf("%s\t%.2f %%", x.Policy, 100*x.Flatness)
			for _, d := range x.Runtimes {
				row += "\t" + short(d).String()
			}
			t.row("%s", row)
		}
		t.flush()
		return b.String() + "\nflatness: longest runtime less the shortest, by the median; 0 is fair\n"
	}
	t := newTable(&b, fmt.Sprintf("%v of card time for each policy", r.Duration), "policy\terror\tJain\tefficiency\tlag")
	for i := range r.Runs {
		x := &r.Runs[i]
		t.row("%s\t%.2f points\t%.4f\t%.2f %%\t%v", x.Policy, 100*x.ShareError, x.Jain, 100*x.Efficiency, short(x.Lag))
	}
	t.flush()
	for i := range r.Runs {
		x := &r.Runs[i]
		t := newTable(&b, x.Policy, "process\tshare\tfair\tlag\trequests\tlatency p50\tp99\tmax\tcopies")
		for k := range x.Clients[:min(len(x.Clients), maxRows)] {
			c := &x.Clients[k]
			t.row("%s\t%.2f %%\t%.2f %%\t%v\t%d\t%v\t%v\t%v\t%v", c.Name, 100*c.Share, 100*c.Fair, short(c.Lag), c.Done, short(c.Median), short(c.P99), short(c.Worst), short(c.Busy[1]))
		}
		t.flush()
		if more := len(x.Clients) - maxRows; more > 0 {
			fmt.Fprintf(&b, "  and %d more, which --json has\n", more)
		}
	}
	return b.String() + simulationLegend
}

func schedList() string {
	var b strings.Builder
	t := newTable(&b, "Presets", "name\tabout")
	for _, p := range simulate.Presets() {
		t.row("%s\t%s", p.Name, p.About)
	}
	t.flush()
	t = newTable(&b, "Parameters", "key\tdefault\taccepts\tmeaning")
	for _, o := range config.Reference(new(config.Schedule)) {
		if o.Key != "policy" { // --policy names those to compare
			t.row("%s\t%s\t%s\t%s", o.Key, o.Default, cmp.Or(o.Accepts, o.Type, "true or false"), o.Help)
		}
	}
	t.flush()
	t = newTable(&b, "Keys of a guest", "key\taccepts\tmeaning")
	for _, o := range simulate.GuestKeys() {
		t.row("%s\t%s\t%s", o.Key, cmp.Or(o.Accepts, o.Type), o.Help)
	}
	t.flush()
	b.WriteString(simulate.FileHelp)
	return b.String()
}

type schedShowCmd struct{ server }

func (c *schedShowCmd) Run(ctx context.Context, out output) error {
	return ask(&c.server, out, func(k *api.Client) (api.Scheduler, error) { return k.Scheduler(ctx) }, func(b *strings.Builder, s *api.Scheduler) {
		schedulerText(b, s)
		ledgerText(b, s.Ledger)
	})
}

type schedSetCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"Options to change: policy=band credit.period=10ms limits.request=2s. umbra sched show lists the keys."`
}

func (c *schedSetCmd) Run(ctx context.Context, out output) error {
	r := api.SetRequest{Options: strings.Join(c.What, ",")}
	return ask(&c.server, out, func(k *api.Client) (api.Scheduler, error) { return k.SetScheduler(ctx, r) }, func(b *strings.Builder, s *api.Scheduler) {
		if len(s.Changes) == 0 {
			b.WriteString(unchanged + "\n")
		}
		schedulerText(b, s)
	})
}
