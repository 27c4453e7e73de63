package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/page"
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

// benchOutput is where a report goes, and what it is compared with.
type benchOutput struct {
	VS   string `name:"vs" placeholder:"FILE" help:"Compare with the report in FILE, the JSON of a run before. What the command line does not say is measured as it was there: --quick, where, which scenarios, set-ups and kernels."`
	JSON bool   `name:"json" help:"Write the report as JSON to standard output, in place of the tables."`
	Out  string `placeholder:"PATH" help:"Write the page there: FILE.html; or the JSON, FILE.json, or the tables, FILE.txt; or all three into a folder. none writes nothing (default: umbra-bench.html and umbra-bench.json; of show: none)."`
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
	names := c.names(benchFiles)
	if err := c.check(); err != nil {
		return err
	}
	if err := o.CheckPlace(); err != nil {
		return err
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
	// A run that was ended has taken its time all the same: what it found is not lost.
	if err := errors.Join(c.write(out, r, then, names), ended); err != nil {
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

// before reads the report to compare with, if there is one.
func (c *benchOutput) before() (*report.Report, error) {
	if c.VS == "" {
		return nil, nil
	}
	r, err := readReport(c.VS)
	if err != nil {
		return nil, &config.Error{Where: "--vs", Value: c.VS, Reason: err.Error()}
	}
	return r, nil
}

func readReport(name string) (*report.Report, error) {
	f, err := os.Open(name)
	if path := new(os.PathError); errors.As(err, &path) {
		return nil, path.Err // the caller names the file
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return report.Decode(f)
}

// noFile is the name, of every command's file to write, that writes nothing.
const noFile = "none"

// check refuses an --out that could not be written, before anything is measured.
func (c *benchOutput) check() error {
	if c.Out == noFile || c.Out == "" {
		return nil
	}
	dir := c.Out
	if filepath.Ext(dir) != "" {
		dir = filepath.Dir(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return &config.Error{Where: "--out", Value: c.Out, Reason: err.Error()}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &config.Error{Where: "--out", Value: c.Out, Reason: dir + " is no folder; make it first"}
	}
	if ext := filepath.Ext(c.Out); ext != "" && writers[ext] == nil {
		return &config.Error{Where: "--out", Value: c.Out, Reason: "must end in .html, .json or .txt, or be a folder"}
	}
	return nil
}

// writers of a report by the end of the file's name.
var writers = map[string]func(*os.File, *report.Report, *report.Comparison) error{
	".html": func(f *os.File, r *report.Report, c *report.Comparison) error { return page.Write(f, r, c) },
	".json": func(f *os.File, r *report.Report, _ *report.Comparison) error { return r.Encode(f) },
	".txt": func(f *os.File, r *report.Report, c *report.Comparison) error {
		_, err := f.WriteString(benchText(r, c))
		return err
	},
}

func benchText(r *report.Report, c *report.Comparison) string {
	text := r.Text()
	if c != nil {
		text += "\n" + c.Text()
	}
	return text
}

// names are the files to write. Of those that nobody named, the one that holds the report to
// compare with stays as it is: it could not be compared with again.
func (c *benchOutput) names(usual []string) (names []string) {
	switch {
	case c.Out == noFile:
		return nil
	case c.Out == "":
		return slices.DeleteFunc(slices.Clone(usual), func(name string) bool { return sameFile(name, c.VS) })
	case filepath.Ext(c.Out) != "":
		return []string{c.Out}
	}
	for _, ext := range slices.Sorted(maps.Keys(writers)) {
		names = append(names, filepath.Join(c.Out, "bench"+ext))
	}
	return names
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// write writes the report to standard output and to files.
func (c *benchOutput) write(out output, r, then *report.Report, names []string) error {
	var compared *report.Comparison
	var refused error
	if then != nil {
		if compared, refused = report.Compare(r, then); refused != nil {
			refused = fmt.Errorf("--vs %s: %w", c.VS, refused)
		}
	}
	var err error
	if c.JSON {
		err = r.Encode(out.stdout)
	} else {
		_, err = fmt.Fprint(out.stdout, benchText(r, compared))
	}
	if err != nil {
		return errors.Join(err, refused)
	}
	for _, name := range names {
		if err := writeReport(name, r, compared); err != nil {
			return err
		}
		fmt.Fprintf(out.stderr, "wrote %s\n", name)
	}
	return refused
}

func writeReport(name string, r *report.Report, c *report.Comparison) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writers[filepath.Ext(name)](f, r, c), f.Close())
}

type benchShowCmd struct {
	File string `arg:"" placeholder:"FILE" help:"Report to show, the JSON of a run."`
	benchOutput
}

func (c *benchShowCmd) Run(out output) error {
	r, err := readReport(c.File)
	if err != nil {
		return badFile(c.File, err)
	}
	then, err := c.before()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return err
	}
	return c.write(out, r, then, c.names(nil)) // who looks asks for no file, and may have that of another run here
}
