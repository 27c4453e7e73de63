package main

import (
	"fmt"
	"strings"
)

// summary prints what ran and returns the exit code.
func (c *checker) summary() int {
	code := 0
	steps := 0 // that are not tests and failed
	fmt.Fprintln(c.out, "\nwhat ran")
	pass, fail, skip := c.tally.counts()
	for _, r := range c.results {
		word, what := "ok", r.what
		switch {
		case r.err != nil:
			word, code = "FAILED", 1
			steps++
		case r.skipped != "":
			word, what = "skipped", r.skipped
			skip++
		}
		fmt.Fprintf(c.out, "  %-12s %-8s %7.1f s  %s\n", r.name, word, r.took.Seconds(), what)
	}
	if k := c.tally.kernelList(); len(k) > 0 {
		fmt.Fprintln(c.out, "kernels booted")
		for _, kernel := range k {
			fmt.Fprintf(c.out, "  %s (%d times)\n", kernel, c.tally.kernels[kernel])
		}
	}
	if list := c.tally.of(skipped); len(list) > 0 {
		fmt.Fprintln(c.out, "skipped tests")
		for _, n := range list {
			fmt.Fprintf(c.out, "  %s: %s\n", n, c.tally.reasons[n])
		}
	}
	if list := c.tally.of(failed); len(list) > 0 {
		code = 1
		fmt.Fprintln(c.out, "failed tests")
		for _, n := range list {
			fmt.Fprintf(c.out, "  %s\n", n)
		}
	}
	if steps > 0 && fail == 0 {
		fail = steps // formatting, vet, staticcheck, or a go test that could not run
	}
	fmt.Fprintln(c.out, strings.Repeat("-", 40))
	fmt.Fprintf(c.out, "%d passed, %d failed, %d skipped\n", pass, fail, skip)
	return code
}
