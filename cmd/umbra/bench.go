package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

type benchCmd struct {
	Run  benchRunCmd  `cmd:"" default:"withargs" help:"Measure scenarios with every set-up by turns; the default. See umbra bench run --help for its flags."`
	Show benchShowCmd `cmd:"" help:"Show the results of a run, or compare two runs."`
	Plot benchPlotCmd `cmd:"" help:"Draw the results of a run as one HTML page."`
}

type benchRunCmd struct {
	InProcess bool     `help:"Measure in this process only: no QEMU, nothing is fetched."`
	Machines  bool     `help:"Measure in virtual machines only."`
	Quick     bool     `help:"Small parameters and few turns, to see that it works."`
	Only      []string `placeholder:"SCENARIO" help:"Scenarios to measure; see --list."`
	Setups    []string `name:"setups" placeholder:"NAME" help:"Set-ups to measure, or every; see --list."`
	Repeat    *int     `placeholder:"N" help:"Turns in this process (default: 6, quick 2). Intervals need 6."`
	Boots     *int     `placeholder:"N" help:"Turns in virtual machines, each a boot (default: 2, quick 1)."`
	Kernels   []string `placeholder:"VERSION" help:"Kernels of the virtual machines: 6.1, 6.12, 7.2 (default: 6.12)."`
	List      bool     `help:"List scenarios and set-ups, and measure nothing."`
	Against   string   `placeholder:"BINARY" help:"Measure another umbra binary too, by turns, and show the ratio of this one to it."`
	VS        string   `name:"vs" placeholder:"FILE" help:"Compare with the results in FILE afterwards."`
	Out       string   `placeholder:"FILE" default:"umbra-bench.txt" help:"File for the results, in Go's benchmark format; none writes none, - writes them to standard output in place of the table (default: ${default})."`
	JSON      bool     `name:"json" help:"Write a summary as JSON to standard output."`
	Work      uint64   `hidden:"" help:"Bytes of busy work for one millisecond (0: calibrate)."`
}

// Turns that are made if nothing else is said.
const (
	benchTurns      = 6
	benchQuickTurns = 2
	benchBoots      = 2
)

func (c *benchRunCmd) Run(ctx context.Context, out output) error {
	if c.List {
		l := bench.List()
		if c.JSON {
			return writeIndented(out.stdout, l)
		}
		_, err := io.WriteString(out.stdout, l.Text())
		return err
	}
	o := bench.Options{
		Version: versionString(), Setups: c.Setups, Only: c.Only, Quick: c.Quick, InProcess: c.InProcess, Machines: c.Machines,
		Turns: benchTurns, Boots: benchBoots, Kernels: c.Kernels, BusyBytes: c.Work, Progress: out.stderr,
	}
	if c.Quick {
		o.Turns, o.Boots = benchQuickTurns, 1
	}
	if c.Repeat != nil {
		o.Turns = *c.Repeat
	}
	if c.Boots != nil {
		o.Boots = *c.Boots
	}
	old, err := c.check(ctx, &o)
	if err != nil {
		return err
	}
	if hint := result.BusyHint(); hint != "" {
		out.warn([]string{hint})
	}
	measured, ended := c.measure(ctx, o)
	if measured == nil || len(measured.Results) == 0 && ended != nil {
		return ended
	}
	// The file comes first: results are not lost if nobody reads the table to its end.
	err = c.write(out, measured, ended != nil)
	if c.Out == "-" || err != nil {
		return errors.Join(ended, err)
	}
	err = show(out.stdout, measured, old, c.JSON, false)
	if ended != nil || err != nil {
		return errors.Join(ended, err)
	}
	if n := len(measured.Errors); n > 0 {
		return fmt.Errorf("%d of the measurements failed", n)
	}
	return nil
}

func (c *benchRunCmd) measure(ctx context.Context, o bench.Options) (*result.Run, error) {
	if c.Against == "" {
		moreProcessors() // as umbra serve has them
		return bench.Run(ctx, o)
	}
	this, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return bench.Against(ctx, o, this, c.Against)
}

// check refuses what could not be measured or written, before anything is measured. It returns the
// results to compare with.
func (c *benchRunCmd) check(ctx context.Context, o *bench.Options) (old *result.Run, err error) {
	switch {
	case c.InProcess && (c.Boots != nil || len(c.Kernels) > 0):
		return nil, &config.Error{Where: "--boots and --kernels", Reason: "have no effect with --in-process, which boots nothing"}
	case c.Machines && c.Repeat != nil:
		return nil, &config.Error{Where: "--repeat", Reason: "has no effect with --machines; give --boots"}
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if c.VS != "" {
		if old, err = readResults(c.VS); err != nil {
			return nil, badFile("--vs: "+c.VS, err)
		}
		if n, err := strconv.ParseUint(old.Config(result.KeyWork), 10, 64); err == nil && o.BusyBytes == 0 {
			o.BusyBytes = n // both runs do the same work
		}
	}
	if c.Out != noFile && c.Out != "-" {
		dir := filepath.Dir(c.Out)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, &config.Error{Where: "--out", Value: c.Out, Reason: dir + " is no folder; make it first"}
		}
	}
	if c.Against != "" {
		if c.Against, err = exec.LookPath(c.Against); err != nil {
			return nil, &config.Error{Where: "--against", Reason: err.Error()}
		}
	}
	if err := o.CheckPlace(); err != nil || !o.UseMachines() {
		return old, err
	}
	return old, checkGiven(ctx, c.Kernels)
}

// noFile is the value of --out that writes nothing.
const noFile = "none"

// write writes the results. A run that was interrupted does not replace the file of a whole one.
func (c *benchRunCmd) write(out output, r *result.Run, interrupted bool) (err error) {
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
	f, err := createWhole(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.discard()) }()
	if err := r.Write(f); err != nil {
		return err
	}
	if err := f.keep(); err != nil {
		return err
	}
	fmt.Fprintf(out.stderr, "wrote %s\n", name)
	return nil
}

type benchShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Results of a run."`
	VS   string `name:"vs" placeholder:"OLD" help:"Compare with the results in OLD: what differs significantly, as benchstat decides it."`
	Base string `placeholder:"SETUP" help:"Set-up that the others are compared with (default: pass-through)."`
	All  bool   `help:"Show every case and every unit; with --vs also what does not differ."`
	JSON bool   `name:"json" help:"Write a summary as JSON."`
}

func (c *benchShowCmd) Run(out output) error {
	r, err := readResults(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	r.Base = c.Base
	if c.VS == "" {
		return show(out.stdout, r, nil, c.JSON, c.All)
	}
	old, err := readResults(c.VS)
	if err != nil {
		return badFile("--vs: "+c.VS, err)
	}
	return result.Compare(out.stdout, old, r, c.All)
}

type benchPlotCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Results of a run."`
	Out  string `placeholder:"FILE.html" default:"umbra-bench.html" help:"Page to write (default: ${default})."`
}

func (c *benchPlotCmd) Run(out output) (err error) {
	r, err := readResults(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	f, err := createWhole(c.Out)
	if err != nil {
		return &config.Error{Where: "--out", Value: c.Out, Reason: err.Error()}
	}
	defer func() { err = errors.Join(err, f.discard()) }()
	if err := r.Page(f); err != nil {
		return err
	}
	if err := f.keep(); err != nil {
		return err
	}
	fmt.Fprintf(out.stderr, "wrote %s\n", c.Out)
	return nil
}

// show writes the results as a table or as JSON, and the comparison with older ones.
func show(w io.Writer, r, old *result.Run, asJSON, all bool) error {
	if asJSON {
		return writeIndented(w, struct {
			Notes   []string       `json:"notes"`
			Errors  []string       `json:"errors,omitempty"`
			Results []result.Group `json:"results"`
		}{r.Notes, r.Errors, r.Groups(true)})
	}
	err := r.Text(w, all)
	if err != nil || old == nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return result.Compare(w, old, r, all)
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func readResults(name string) (*result.Run, error) {
	data, err := os.ReadFile(name)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, path.Err // the caller names the file
	}
	if err != nil {
		return nil, err
	}
	return result.Read(bytes.NewReader(data))
}

// checkGiven checks the files that environment variables name for virtual machines. What no
// variable names is fetched later.
func checkGiven(ctx context.Context, kernels []string) error {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return err
	}
	cache := &fetch.Cache{Dir: dir, Offline: true}
	bad := func(err error, remedy string) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &config.Error{Where: "virtual machines", Reason: fmt.Sprintf("%v; %s, or leave the variable empty to have one fetched", err, remedy)}
	}
	if os.Getenv(fetch.EnvQEMU) != "" {
		if _, err := cache.QEMU(ctx); err != nil {
			return bad(err, "name a qemu-system-x86_64 of QEMU 10.1 or newer")
		}
	}
	if os.Getenv(fetch.EnvKernel) == "" {
		return nil
	}
	if len(kernels) == 0 {
		kernels = []string{fetch.DefaultKernel}
	}
	for _, version := range kernels {
		if _, err := cache.Kernel(ctx, version); err != nil && !errors.Is(err, fetch.ErrNotFetched) {
			return bad(err, "name a bzImage, and its lib/modules/RELEASE by "+fetch.EnvKernelModules)
		}
	}
	return nil
}
