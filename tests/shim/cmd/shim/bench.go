package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
)

// report is what bench prints.
type report struct {
	Versions  string          `json:"versions"`
	CPUs      int             `json:"cpus"`
	Workloads []shim.Measured `json:"workloads"`
	Mean      float64         `json:"geometricMean"`
	Fastest   float64         `json:"geometricMeanOfFastest"`
	Compiled  float64         `json:"geometricMeanCompiled,omitempty"`
	// Processors is the mean of what runs programs best, our card or compiled, by processor time.
	Processors float64 `json:"geometricMeanProcessors"`
}

// bench compares the card with Mesa's renderer and PoCL.
func bench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("shim bench", flag.ContinueOnError)
	only := flags.String("only", "", "programs, with commas between; default all")
	turns := flags.Int("turns", 3, "processes of each program on each device")
	rounds := flags.Int("rounds", 3, "times that each process measures")
	compile := flags.String("compile", compileOff, compileHelp+"; its times are one more column")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *turns < 1 || *rounds < 1 {
		return fmt.Errorf("-turns %d -rounds %d: want at least 1", *turns, *rounds)
	}
	if !strings.Contains(runtime.Version(), "X:simd") {
		return fmt.Errorf("bench was built without the card's vectors: set GOEXPERIMENT=simd, as make build does")
	}
	workloads := shim.Workloads
	if *only != "" {
		workloads = nil
		for _, name := range strings.Split(*only, ",") {
			i := slices.IndexFunc(shim.Workloads, func(w shim.Workload) bool { return w.Program == name })
			if i < 0 {
				return fmt.Errorf("-only %s: no such program", name)
			}
			workloads = append(workloads, shim.Workloads[i])
		}
	}
	host, err := newHost(ctx, (*fetch.Cache).Peers, "25")
	if err != nil {
		return err
	}
	defer host.Close()
	var cfg shim.Config
	done, err := useCompiler(ctx, &cfg, *compile)
	if err != nil {
		return err
	}
	defer done()
	c := shim.Comparison{Compile: cfg.Compile, Host: host, Workloads: workloads, Turns: *turns, Rounds: *rounds}
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil { // it rewrites its line
		c.Progress = os.Stderr
	}
	r := report{Versions: host.Versions(), CPUs: runtime.GOMAXPROCS(0)}
	if r.Workloads, err = c.Run(ctx); err != nil {
		return err
	}
	var medians, fastest, processors []shim.Times
	for _, m := range r.Workloads {
		medians, fastest, processors = append(medians, m.Median), append(fastest, m.Fastest), append(processors, m.Processors)
	}
	r.Mean, r.Fastest = shim.GeometricMean(medians, shim.OurCard), shim.GeometricMean(fastest, shim.OurCard)
	r.Processors = shim.GeometricMean(processors, shim.OurCard)
	if c.Compile != nil {
		r.Compiled, r.Processors = shim.GeometricMean(medians, shim.Compiled), shim.GeometricMean(processors, shim.Compiled)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "\t")
		return e.Encode(r)
	}
	return r.print()
}

// print writes a table that fits a screen.
func (r *report) print() error {
	fmt.Printf("%s; %d processors for each; ms, medians\n\n", r.Versions, r.CPUs)
	devices, fastest := []string{shim.OurCard, shim.Renderer, shim.PoCL}, shim.OurCard
	if r.Compiled > 0 {
		devices, fastest = slices.Insert(devices, 1, shim.Compiled), shim.Compiled
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "program\tsize\t")
	for _, d := range devices {
		fmt.Fprint(w, strings.ReplaceAll(d, shim.OurCard, "our card"), "\t")
	}
	fmt.Fprint(w, "our card/better\t")
	if r.Compiled > 0 {
		fmt.Fprint(w, "compiled/better\t")
	}
	fmt.Fprint(w, "processors\t\n")
	for i := range r.Workloads {
		m := &r.Workloads[i]
		fmt.Fprintf(w, "%s\t%s\t", m.Program, m.Args)
		for _, d := range devices {
			fmt.Fprintf(w, "%.2f\t", m.Median[d])
		}
		fmt.Fprintf(w, "%.2f\t", m.Median.Ratio(shim.OurCard))
		if r.Compiled > 0 {
			fmt.Fprintf(w, "%.2f\t", m.Median.Ratio(shim.Compiled))
		}
		fmt.Fprintf(w, "%.2f\t\n", m.Processors.Ratio(fastest))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Print("\nbetter: the faster of llvmpipe and PoCL; above 1, our card is slower\n" +
		"processors: the last ratio by what processors worked, in the program's process and the card's\n")
	fmt.Printf("\nour card takes %.2f times as long as the better of the two (geometric mean); %.2f by the fastest rounds\n", r.Mean, r.Fastest)
	if r.Compiled > 0 {
		fmt.Printf("compiled programs take %.2f times as long\n", r.Compiled)
	}
	fmt.Printf("processors work %.2f times as long\n", r.Processors)
	return nil
}
