package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/config"
)

type benchCmd struct {
	Run  benchRunCmd  `cmd:"" default:"withargs" help:"Measure scenarios with every set-up by turns; the default."`
	Show benchShowCmd `cmd:"" help:"Show the results of a run, or compare two runs."`
	Plot benchPlotCmd `cmd:"" help:"Draw the results of a run as one HTML page."`
}

// Help implements kong.HelpProvider. The flags of the default command are not in this one's help.
func (benchCmd) Help() string {
	return "umbra bench --quick --in-process takes about a minute. Without --in-process it also boots five virtual machines, " +
		"and takes three to five minutes. umbra bench run --help has all flags."
}

type benchRunCmd struct {
	InProcess bool     `help:"Measure in this process only: no QEMU, nothing is fetched."`
	Machines  bool     `help:"Measure in virtual machines only."`
	Quick     bool     `help:"Small parameters and few rounds, to see that it works. Ratios have no interval."`
	Only      []string `placeholder:"SCENARIO" help:"Scenarios to measure; see --list."`
	Setups    []string `name:"setups" placeholder:"NAME" help:"Set-ups to measure, or every; see --list."`
	Repeat    int      `placeholder:"N" help:"Rounds in this process (default: 6, quick 2). Intervals need 6."`
	Boots     int      `placeholder:"N" help:"Rounds in virtual machines, each a boot (default: 2, quick 1)."`
	Kernels   []string `placeholder:"VERSION" help:"Kernels of the virtual machines: 6.1, 6.12, 7.2 (default: 6.12)."`
	List      bool     `help:"List scenarios and set-ups, and measure nothing."`
	Out       string   `placeholder:"FILE" default:"umbra-bench.txt" help:"File for the results, in Go's benchmark format; none writes none, - writes them to standard output in place of the table."`
}

// Rounds that are made if nothing else is said.
const (
	benchRounds      = 6
	benchQuickRounds = 2
	benchBoots       = 2
	benchQuickBoots  = 1
)

func (c *benchRunCmd) Run(ctx context.Context, out output) error {
	if c.List {
		_, err := io.WriteString(out.stdout, bench.List())
		return err
	}
	rounds, boots := benchRounds, benchBoots
	if c.Quick {
		rounds, boots = benchQuickRounds, benchQuickBoots
	}
	o := bench.Options{
		Version: versionString(), Setups: c.Setups, Only: c.Only, Quick: c.Quick, InProcess: c.InProcess, Machines: c.Machines,
		Rounds: cmp.Or(c.Repeat, rounds), Boots: cmp.Or(c.Boots, boots), Kernels: c.Kernels, Progress: out.stderr,
	}
	if err := o.Check(); err != nil {
		return err
	}
	if dir := filepath.Dir(c.Out); c.Out != noFile && c.Out != "-" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return &config.Error{Where: "--out", Value: c.Out, Reason: dir + " is no folder; make it first"}
		}
	}
	if hint := result.BusyHint(); hint != "" {
		fmt.Fprintf(out.stderr, "umbra: warning: %s\n", hint)
	}
	moreProcessors() // as umbra serve has them
	measured, ended := bench.Run(ctx, o)
	if measured == nil || len(measured.Results) == 0 && ended != nil {
		return ended
	}
	// The file comes first: results are not lost if nobody reads the table to its end.
	err := c.write(out, measured, ended != nil)
	if c.Out == "-" || err != nil {
		return errors.Join(ended, err)
	}
	if err := errors.Join(ended, measured.Text(out.stdout, false)); err != nil {
		return err
	}
	if n := len(measured.Errors); n > 0 {
		return fmt.Errorf("%d of the measurements failed", n)
	}
	return nil
}

// noFile is the value of --out that writes nothing.
const noFile = "none"

// write writes the results. A run that was interrupted does not replace the file of a whole one.
func (c *benchRunCmd) write(out output, r *result.Run, interrupted bool) error {
	switch c.Out {
	case noFile:
		return nil
	case "-":
		return r.Write(out.stdout)
	}
	name := c.Out
	if interrupted {
		ext := filepath.Ext(name)
		name = strings.TrimSuffix(name, ext) + ".partial" + ext
	}
	return writeWhole(out, name, r.Write)
}

// writeWhole writes a file once its contents are complete.
func writeWhole(out output, name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(name, b.Bytes(), 0o666); err != nil {
		return badFile("--out: "+name, err)
	}
	fmt.Fprintf(out.stderr, "wrote %s\n", name)
	return nil
}

type benchShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Results of a run."`
	VS   string `name:"vs" placeholder:"OLD" help:"Compare with the results in OLD: what differs significantly, as benchstat decides it."`
	Base string `placeholder:"SETUP" help:"Set-up that the others are compared with (default: pass-through)."`
	All  bool   `help:"Show every case and every unit; with --vs also what does not differ."`
}

func (c *benchShowCmd) Run(out output) error {
	r, err := readResults("", c.File)
	if err != nil {
		return err
	}
	if setups := r.Setups(); c.Base != "" && !slices.Contains(setups, c.Base) {
		return &config.Error{Where: "--base", Value: c.Base, Reason: c.File + " has no such set-up; " + config.Known(c.Base, setups)}
	}
	r.Base = c.Base
	if c.VS != "" {
		old, err := readResults("--vs: ", c.VS)
		if err != nil {
			return err
		}
		return result.Compare(out.stdout, old, r, c.All)
	}
	return r.Text(out.stdout, c.All)
}

type benchPlotCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Results of a run."`
	Out  string `placeholder:"FILE.html" default:"umbra-bench.html" help:"Page to write."`
}

func (c *benchPlotCmd) Run(out output) error {
	r, err := readResults("", c.File)
	if err != nil {
		return err
	}
	return writeWhole(out, c.Out, r.Page)
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// readResults reads a file that the command line names, as a flag if there is one.
func readResults(flag, name string) (*result.Run, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, badFile(flag+name, err)
	}
	r, err := result.Read(bytes.NewReader(data))
	if err != nil {
		return nil, badFile(flag+name, err)
	}
	return r, nil
}
