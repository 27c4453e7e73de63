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
	_, err = io.WriteString(out.stdout, r.Text())
	return err
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
