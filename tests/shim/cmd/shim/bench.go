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
	var medians, fastest []shim.Times
	for _, m := range r.Workloads {
		medians, fastest = append(medians, m.Median), append(fastest, m.Fastest)
	}
	r.Mean, r.Fastest = shim.GeometricMean(medians, shim.OurCard), shim.GeometricMean(fastest, shim.OurCard)
	if c.Compile != nil {
		r.Compiled = shim.GeometricMean(medians, shim.Compiled)
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
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	compiled := r.Compiled > 0
	fmt.Fprint(w, "program\tsize\tour card\t")
	if compiled {
		fmt.Fprint(w, "compiled\t")
	}
	fmt.Fprint(w, "llvmpipe\tPoCL\tours/better\t")
	if compiled {
		fmt.Fprint(w, "compiled/better\t")
	}
	fmt.Fprint(w, "warp instr.\tns each\tbetter\t\n")
	for i := range r.Workloads {
		m := &r.Workloads[i]
		per := 1e6 / float64(m.WarpInstructions)
		fmt.Fprintf(w, "%s\t%s\t%.2f\t", m.Program, m.Args, m.Median[shim.OurCard])
		if compiled {
			fmt.Fprintf(w, "%.2f\t", m.Median[shim.Compiled])
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t", m.Median[shim.Renderer], m.Median[shim.PoCL], m.Median.Ratio(shim.OurCard))
		if compiled {
			fmt.Fprintf(w, "%.2f\t", m.Median.Ratio(shim.Compiled))
		}
		fmt.Fprintf(w, "%.1f k\t%.1f\t%.1f\t\n", float64(m.WarpInstructions)/1e3, m.Median[shim.OurCard]*per, m.Median.Better()*per)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Print("\nours/better: our card's time by that of the faster of llvmpipe and PoCL; above 1, our card is slower\n" +
		"warp instr.: what our card executed; ns each: our card's time for each; better: the faster one's time for each\n")
	fmt.Printf("\nour card takes %.2f times as long as the better of the two (geometric mean); %.2f by the fastest rounds\n", r.Mean, r.Fastest)
	if compiled {
		fmt.Printf("compiled programs take %.2f times as long\n", r.Compiled)
	}
	return nil
}
