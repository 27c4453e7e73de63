package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/simulate"
)

type schedCmd struct {
	Show     schedShowCmd     `cmd:"" help:"Show how a running server shares its card's time, and how much each guest had."`
	Set      schedSetCmd      `cmd:"" help:"Change how a running server shares its card's time while guests run."`
	Simulate schedSimulateCmd `cmd:"" help:"Show how a mix of guests shares a card under each policy, in virtual time."`
}

type schedSimulateCmd struct {
	Preset   string         `placeholder:"NAME" help:"An experiment by name; --list says which there are (default: nn)."`
	Mix      string         `placeholder:"FILE" help:"Who uses the card, as YAML."`
	Guest    []string       `sep:"none" placeholder:"KEY=VALUE,..." help:"A guest, such as name=a,busy=2ms,weight=200,processes=3. Repeat it for more."`
	Policy   []string       `placeholder:"NAME" help:"Policies to compare: none, fifo, credit, band, timeslice, dfq (default: all)."`
	Set      []string       `sep:"none" placeholder:"KEY=VALUE" help:"A parameter, such as credit.period=10ms; --list says which there are."`
	Duration *time.Duration `placeholder:"TIME" help:"Card time to simulate; of a sweep, how much each run may take until its program is done (default: 20s, and 1000s)."`
	Seed     uint64         `placeholder:"N" help:"Of what is drawn at random; the same seed gives the same run (default: 1)."`
	Out      string         `placeholder:"FILE" help:"Write a page with plots there, FILE.html, or the JSON, FILE.json; none writes nothing (default: none)."`
	JSON     bool           `name:"json" help:"Write JSON to standard output, in place of the tables."`
	List     bool           `help:"List presets and parameters, and simulate nothing."`
}

func (c *schedSimulateCmd) Run(ctx context.Context, out output) (err error) {
	if c.List {
		_, err := io.WriteString(out.stdout, schedList())
		return err
	}
	o := simulate.Options{Preset: c.Preset, File: c.Mix, Guests: c.Guest, Policies: c.Policy, Set: c.Set, Seed: c.Seed}
	if c.Duration != nil {
		if *c.Duration <= 0 { // which is the default's to the package
			return &config.Error{Where: "--duration", Value: c.Duration.String(), Reason: "must be more than 0"}
		}
		o.Duration = *c.Duration
	}
	plan, err := o.Plan()
	if err != nil {
		return err
	}
	plan.Progress = func(line string) { fmt.Fprintln(out.stderr, line) }
	var page *wholeFile
	write := simulateWriters[filepath.Ext(c.Out)]
	if c.Out != "" && c.Out != noFile { // one that cannot be written is told before anything runs
		if write == nil {
			return &config.Error{Where: "--out", Value: c.Out, Reason: "must end in .html or .json"}
		}
		if page, err = createWhole(c.Out); err != nil {
			return &config.Error{Where: "--out", Value: c.Out, Reason: err.Error()}
		}
		defer func() { err = errors.Join(err, page.discard()) }()
	}
	r, err := simulate.Simulate(ctx, plan)
	if err != nil {
		return err
	}
	if page != nil {
		if err := write(r, page); err != nil {
			return err
		}
		if err := page.keep(); err != nil {
			return err
		}
		fmt.Fprintf(out.stderr, "wrote %s\n", c.Out)
	}
	if c.JSON {
		return r.WriteJSON(out.stdout)
	}
	_, err = io.WriteString(out.stdout, r.Text())
	return err
}

// simulateWriters write a report by the end of the file's name.
var simulateWriters = map[string]func(*simulate.Report, io.Writer) error{
	".html": (*simulate.Report).WritePage,
	".json": (*simulate.Report).WriteJSON,
}

func schedList() string {
	var b strings.Builder
	t := newTable(&b, "Presets", "name\tabout")
	for _, p := range simulate.Presets() {
		t.row("%s\t%s", p.Name, p.About)
	}
	t.flush()
	fmt.Fprintf(&b, "\nParameters\n  %s\n", strings.Join(simulate.Settings(), "\n  "))
	return b.String()
}
