package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/config"
)

type benchCmd struct {
	Run  benchRunCmd  `cmd:"" default:"withargs" help:"Measure scenarios with every set-up by turns; the default."`
	Show benchShowCmd `cmd:"" help:"Show the table of a run again."`
}

// Help implements kong.HelpProvider. The flags of the default command are not in this one's help.
func (benchCmd) Help() string {
	return "umbra bench --quick --in-process takes about a minute. Without --in-process it also boots five virtual machines, " +
		"and takes three to five minutes. umbra bench run --help has all flags. " +
		"Results are in Go's benchmark format: benchstat compares two runs, and shows every case and unit."
}

type benchRunCmd struct {
	InProcess bool     `help:"Measure in this process only: no QEMU, nothing is fetched."`
	Machines  bool     `help:"Measure in virtual machines only."`
	Quick     bool     `help:"Small parameters and few rounds, to see that it works. Ratios have no interval."`
	Only      []string `placeholder:"SCENARIO" help:"Scenarios to measure; see --list."`
	Setups    []string `name:"setups" placeholder:"NAME" help:"Set-ups to measure, or every; see --list."`
	Repeat    int      `placeholder:"N" help:"Rounds (default: 6 in this process and 2 boots of each virtual machine, quick 2 and 1). Intervals need 6."`
	Kernels   []string `placeholder:"VERSION" help:"Kernels of the virtual machines: 6.1, 6.12, 7.2 (default: 6.12)."`
	LLVM      string   `name:"llvm" placeholder:"FILE" help:"The library libLLVM.so.19.1, with which opencl's programs become machine code. default: that of the system, or else the one that umbra lab run has fetched."`
	List      bool     `help:"List scenarios and set-ups, and measure nothing."`
	Out       string   `placeholder:"FILE" default:"umbra-bench.txt" help:"File for the results, in Go's benchmark format; none writes none, - writes them to standard output in place of the table."`
}

func (c *benchRunCmd) Run(ctx context.Context, parsed *kong.Context, out output) error {
	if c.List {
		_, err := io.WriteString(out.stdout, bench.List())
		return err
	}
	o := bench.Options{
		Version: versionString(), Flags: strings.Join(parsed.Args, " "), Setups: c.Setups, Only: c.Only, Repeat: c.Repeat, Quick: c.Quick,
		InProcess: c.InProcess, Machines: c.Machines, Kernels: c.Kernels, LLVM: c.LLVM, Progress: out.stderr,
	}
	if err := o.Check(); err != nil {
		return err
	}
	var file *newFile // opened first: what cannot be written should not be measured
	if c.Out != noFile && c.Out != "-" {
		var err error
		if file, err = createNew(c.Out); err != nil {
			return badFile("--out: "+c.Out, err)
		}
		defer file.discard()
	}
	if hint := bench.BusyHint(); hint != "" {
		fmt.Fprintf(out.stderr, "umbra: warning: %s\n", hint)
	}
	moreProcessors() // as umbra serve has them
	measured, ended := bench.Run(ctx, o)
	if measured == nil || len(measured.Lines) == 0 && ended != nil {
		return ended
	}
	if c.Out == "-" {
		return errors.Join(ended, measured.Write(out.stdout))
	}
	// The file comes first: results are not lost if nobody reads the table to its end.
	if file != nil {
		if ended != nil { // the file of a whole run stays
			ext := filepath.Ext(file.name)
			file.name = strings.TrimSuffix(file.name, ext) + ".partial" + ext
		}
		err := file.write(measured.Write)
		if err == nil {
			fmt.Fprintf(out.stderr, "wrote %s\n", filepath.Base(file.name))
		}
		ended = errors.Join(ended, err)
	}
	ended = errors.Join(ended, measured.Text(out.stdout, ""))
	if n := len(measured.Errors); n > 0 && ended == nil {
		return fmt.Errorf("%d of the measurements failed", n)
	}
	return ended
}

// noFile is the value of --out that writes nothing.
const noFile = "none"

// newFile is a file that is written beside another and then takes its place.
type newFile struct {
	name string
	tmp  *os.File
}

// createNew prepares to replace a file, or what a link leads to.
func createNew(name string) (*newFile, error) {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	tmp, err := os.OpenFile(fmt.Sprintf("%s.%d.tmp", name, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	return &newFile{name, tmp}, err
}

// write fills the file and puts it in place.
func (f *newFile) write(write func(io.Writer) error) error {
	if err := errors.Join(write(f.tmp), f.tmp.Sync(), f.tmp.Close()); err != nil {
		return fmt.Errorf("%s is not written: %w", f.name, err)
	}
	return os.Rename(f.tmp.Name(), f.name)
}

// discard removes what was not put in place.
func (f *newFile) discard() {
	f.tmp.Close()
	os.Remove(f.tmp.Name())
}

type benchShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Results of a run."`
	Base string `placeholder:"SETUP" help:"Set-up that the others are compared with (default: pass-through)."`
}

func (c *benchShowCmd) Run(out output) error {
	r, err := readResults(c.File)
	if err != nil {
		return err
	}
	if setups := r.Setups(); c.Base != "" && !slices.Contains(setups, c.Base) {
		return &config.Error{Where: "--base", Value: c.Base, Reason: c.File + " has no such set-up; " + config.Known(c.Base, setups)}
	}
	return r.Text(out.stdout, c.Base)
}

func readResults(name string) (*bench.Results, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, badFile(name, err)
	}
	defer f.Close()
	r, err := bench.Read(f)
	if err != nil {
		return nil, badFile(name, err)
	}
	return r, nil
}

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
