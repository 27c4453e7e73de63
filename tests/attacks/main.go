// Command attacks measures what a guest notices of hostile guests and clients on the same card. For
// each attack a server runs as a process of its own. The victim in this process works at fixed
// times, by turns without and beside the attack, which is another process.
//
//	go run ./tests/attacks                                all attacks, seven minutes
//	go run ./tests/attacks -only parked -sched-policy dfq
//	go run ./tests/attacks -umbra ./umbra-before          the same attacks on another build
//
// The exit status is 1 if the victim notices more than it may.
//
// A run owns its processes and goroutines, and has ended them when it returns. There are no locks.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// options are the command line.
type options struct {
	only          []string
	umbra, policy string
	rounds        int
	alone         bool
	window        time.Duration
	compiler      *jit.Config // of attacks with a compiler
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == attackCommand {
		fmt.Fprintln(os.Stderr, attackForEver(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	var o options
	only := flag.String("only", "", "attacks to make, a `LIST` of "+strings.Join(names(), ", "))
	quick := flag.Bool("quick", false, "one short round of each attack, to see that it works")
	flag.BoolVar(&o.alone, "alone", false, "compare with a victim that is alone, also if the attack wants an engine")
	flag.IntVar(&o.rounds, "repeat", 0, "rounds of each attack (default 3, quick 1)")
	flag.StringVar(&o.policy, "sched-policy", "auto", "scheduler of the server")
	flag.StringVar(&o.umbra, "umbra", "", "the umbra `FILE` to attack (default: build one)")
	flag.Parse()
	o.rounds, o.window = max(cmp.Or(o.rounds, 3), 1), 2*time.Second
	if *quick {
		o.rounds, o.window = 1, 500*time.Millisecond
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, n := range o.only {
		if !slices.Contains(names(), n) {
			fmt.Fprintf(os.Stderr, "-only: %s: no such attack; there are %s\n", n, strings.Join(names(), ", "))
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := caught(func() { must(o.run(ctx, os.Stdout)) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes the attacks, and writes what the victim noticed also if it is interrupted.
func (o *options) run(ctx context.Context, w io.Writer) error {
	dir := get(os.MkdirTemp("", "umbra-attacks-"))
	defer os.RemoveAll(dir)
	if o.umbra == "" {
		o.umbra = get(testserver.BuildUmbra(ctx, dir))
	}
	o.umbra = get(filepath.Abs(o.umbra))
	if slices.ContainsFunc(attacks, func(a attack) bool { return o.asked(&a) && strings.HasSuffix(a.name, compiled) }) {
		o.compiler = get(shim.Compiler(ctx, &fetch.Cache{Dir: get(fetch.DefaultDir())}, dir))
	}
	var rows []*run
	failed := 0
	err := caught(func() {
		for i := range attacks {
			if a := &attacks[i]; o.asked(a) {
				fmt.Fprintf(os.Stderr, "%s: %s\n", a.name, a.about)
				r := o.measure(ctx, a)
				if rows = append(rows, r); len(r.failed) > 0 {
					failed++
				}
			}
		}
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("the victim notices %d of %d attacks", failed, len(rows))
	}
	if len(rows) > 0 {
		err = errors.Join(err, write(w, rows))
	}
	return err
}

func (o *options) asked(a *attack) bool { return len(o.only) == 0 || slices.Contains(o.only, a.name) }

// write writes a line for each attack, then what failed.
func write(w io.Writer, rows []*run) error {
	var b, why strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "attack")
	for _, op := range ops {
		fmt.Fprintf(t, "\t%s", op.name)
	}
	fmt.Fprintln(t, "\tnoise\ttraps\tshare\tcontrol\tend\tverdict")
	for _, r := range rows {
		r.line(t)
		for _, s := range append(r.failed, r.notes...) {
			fmt.Fprintf(&why, "%s: %s\n", r.attack.name, s)
		}
	}
	t.Flush()
	b.WriteString("\nThe victim's 99th percentile (median) by those without the attack, the median of the rounds; at most 2.0.\n" +
		"noise: the largest spread of the rounds without it. traps: by those without it. share: percent of an engine that both want, of those\n" +
		"beside a fair neighbour; at most 3 less. control: the slowest answer; at most 100ms. end: from SIGTERM; at most 2s.\n\n")
	_, err := io.WriteString(w, b.String()+why.String())
	return err
}

func (r *run) line(w io.Writer) {
	fmt.Fprint(w, r.attack.name)
	noise, share, verdict := 1.0, "-", "withstood"
	for _, k := range r.work {
		noise = max(noise, k.noise)
		fmt.Fprintf(w, "\t%.1f (%.1f)", k.p99, k.median)
	}
	if r.share != nil {
		share = fmt.Sprintf("%.0f of %.0f", r.share.attacked, r.share.quiet)
	}
	if len(r.failed) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\t%.1f\t%.1f\t%s\t%v\t%v\t%s\n", noise, r.traps, share, r.control.Round(time.Millisecond), r.end.Round(time.Millisecond), verdict)
}
