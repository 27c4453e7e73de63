// Command bench measures the parts of a server against their floors: what a bare
// loop of system calls takes, what copy() takes, what an access takes that is not
// trapped. What serving a GPU costs as a whole is umbra bench's to say.
//
//	go run ./tests/bench [--only socket,copies] [--repeat 5] [--json]
//
// The sections:
//
//	protocol  package vfiouser's own benchmarks, whose device does nothing
//	socket    the card behind a bare socket, against a bare blocking echo
//	copies    M2MF and the copy engines, against copy() of the same bytes
//	qemu      a stock guest's accesses, with and without a mapped region
//
// Nothing here is a test. A target that is missed is reported as missed; the exit
// code is 1 only if something could not be measured or the bytes came out wrong.
// Figures in time say something about the machine they were taken on, which the
// head of the table names; ratios travel better.
//
// A section may have one goroutine, the other end of its socket, and waits for it.
// There are no locks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// sections in the order in which they run. The ones without a machine go first, so
// that nothing of a machine is left while they measure.
var sections = []struct {
	name, title string
	measure     func(b *bench, ctx context.Context) error
}{
	{"protocol", "The protocol alone: package vfiouser with a device that does nothing", (*bench).protocol},
	{"socket", "Over the bare socket, with the card behind it", (*bench).socket},
	{"copies", "Copies by the card's engines, against copy() of the same bytes", (*bench).copies},
	{"qemu", "Through QEMU, by a program in the guest", (*bench).qemu},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// options are the command line.
type options struct {
	repeat  int
	only    []string
	json    bool
	profile string
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	only := fs.String("only", strings.Join(sectionNames(), ","), "the `sections` to measure")
	fs.IntVar(&o.repeat, "repeat", 5, "`times` that each figure is measured")
	fs.BoolVar(&o.json, "json", false, "write the figures as JSON")
	fs.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process to a `file`")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.only = strings.Split(*only, ",")
	for _, n := range o.only {
		if !slices.Contains(sectionNames(), n) {
			return o, fmt.Errorf("--only has %q; the sections are %s", n, strings.Join(sectionNames(), ", "))
		}
	}
	switch {
	case o.repeat < 1:
		return o, fmt.Errorf("--repeat is %d; it must be 1 or more", o.repeat)
	case fs.NArg() > 0:
		return o, fmt.Errorf("%q: there are no arguments, only options", fs.Arg(0))
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitUsage
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err == nil {
			defer f.Close()
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return exitUsage
		}
		defer pprof.StopCPUProfile()
	}
	b := &bench{options: o, log: stderr, res: result{Machine: report.ThisMachine(), Repeat: o.repeat}}
	b.all(ctx)
	if o.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(&b.res)
	} else {
		_, err = io.WriteString(stdout, b.res.text())
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	if err != nil || len(b.res.Errors) > 0 {
		return exitFailed
	}
	return exitOK
}

// bench is one run.
type bench struct {
	options
	log io.Writer
	res result
}

// all measures the sections asked for. One that fails does not end the others.
func (b *bench) all(ctx context.Context) {
	for _, s := range sections {
		if !slices.Contains(b.only, s.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(b.log, "%s ...\n", s.title)
		began := time.Now()
		b.res.Sections = append(b.res.Sections, section{Name: s.name, Title: s.title})
		if err := s.measure(b, ctx); err != nil {
			b.res.Errors = append(b.res.Errors, fmt.Sprintf("%s: %v", s.name, err))
			fmt.Fprintf(b.log, "bench: %s: %v\n", s.name, err)
		}
		b.section().Seconds = time.Since(began).Seconds()
	}
}

func (b *bench) section() *section { return &b.res.Sections[len(b.res.Sections)-1] }

// add enters a figure. A figure that nothing was measured of is an error of the
// caller's, and is entered as it is: without a median.
func (b *bench) add(name string, u unit, values []float64, targets ...target) {
	f := newFigure(name, u, values)
	for _, t := range targets {
		f.Target, f.Reached = t.text, new(t.holds(f.Median))
	}
	s := b.section()
	s.Figures = append(s.Figures, f)
}
