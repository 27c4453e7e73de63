// Command check runs the repository's checks and tests and says what ran:
//
//	check               everything
//	check lint          gofmt, go vet, staticcheck
//	check unit race     the tests that need no virtual machine, plain and under the race detector
//	check libvfio-user  the tests of the C library as a transport, which is built if it has not been
//	check vm            the tests that boot virtual machines
//	check fuzz          every fuzz target for -fuzztime
//
// Its last line is "N passed, N failed, N skipped", counted in tests (a test
// with subtests counts as those). A test that ran in several steps counts once:
// as failed if it failed in any, as passed if it passed in any. Every skip is
// listed with its reason. The exit code is 0 only if nothing failed.
//
// A test that boots a kernel says so with t.Attr("kernel", "6.12.1 under tcg");
// the summary lists them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	var c checker
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.StringVar(&c.tests, "run", "", "run only the tests that match this `regexp`")
	fs.DurationVar(&c.fuzzTime, "fuzztime", 10*time.Second, "how long each fuzz target runs")
	fs.BoolVar(&c.verbose, "v", false, "print every test")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(fs.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		return 2
	}
	c.out = os.Stdout
	for _, s := range chosen {
		c.step(ctx, s)
	}
	return c.summary()
}

// choose returns the steps with the given names, in the order of the table.
// Without names, all but those that have to be asked for.
func choose(names []string) ([]step, error) {
	var out []step
	for _, s := range steps {
		if slices.Contains(names, s.name) || slices.Contains(names, s.group) || len(names) == 0 && !s.onRequest {
			out = append(out, s)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.name == n || s.group == n }) {
			return nil, fmt.Errorf("no step is called %q; there are %s", n, strings.Join(stepNames(), ", "))
		}
	}
	return out, nil
}
