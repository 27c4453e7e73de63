// Command tally sums up a run of tools/test from the folder that it left: a file
// with a line for each step, and the test events that gotestsum wrote. Its last
// line is "N passed, N failed, N skipped"; it exits with 1 if anything failed.
//
// Tests are counted at their leaves: a test with subtests counts as those. A
// test that ran in several steps counts once, as failed if it failed in any.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// outcome of a test, the one that counts most last.
type outcome int

const (
	skipped outcome = iota
	passed
	running // never ended: the test process died
	failed
)

type name struct{ pkg, test string }

func (n name) String() string {
	return strings.TrimPrefix(n.pkg, "github.com/umbra-gpu/umbra/") + " " + n.test
}

type tally struct {
	tests   map[name]outcome
	seconds map[name]float64 // of top-level tests
	output  map[name]string  // the last source line that a test printed
	reasons map[string]int   // of skips
	kernels map[string]int
}

var sourceLine = regexp.MustCompile(`^\s*\S+\.go:\d+: (.*)`)

// read takes in the events of one go test -json.
func (t *tally) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	now := make(map[name]outcome)
	in := bufio.NewScanner(f)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e struct {
			Action, Package, Test, Output, Key, Value string
			Elapsed                                   float64
		}
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Package == "" {
			continue
		}
		n := name{e.Package, e.Test}
		switch e.Action {
		case "run":
			now[n] = running
		case "output":
			if m := sourceLine.FindStringSubmatch(e.Output); m != nil {
				t.output[n] = strings.TrimSpace(m[1])
			}
		case "attr":
			if e.Key == "kernel" {
				t.kernels[e.Value]++
			}
		case "skip":
			now[n] = skipped
		case "pass":
			now[n] = passed
		case "fail":
			now[n] = failed
		}
		if e.Elapsed > 0 && e.Test != "" && !strings.Contains(e.Test, "/") {
			t.seconds[n] = max(t.seconds[n], e.Elapsed)
		}
	}
	for n, o := range now {
		if old, ok := t.tests[n]; !ok || o > old {
			t.tests[n] = o
		}
	}
	return in.Err()
}

// count counts leaves, and what failed without a failing test below it.
func (t *tally) count() (pass, fail, skip int, failures []string) {
	parents, blamed := make(map[name]bool), make(map[name]bool)
	for n, o := range t.tests {
		for up := n; up.test != ""; {
			up.test = up.test[:max(strings.LastIndexByte(up.test, '/'), 0)]
			parents[up] = true
			blamed[up] = blamed[up] || o >= running
		}
	}
	for n, o := range t.tests {
		switch {
		case o >= running && !blamed[n]:
			fail++
			failures = append(failures, n.String())
		case n.test == "" || parents[n]:
		case o == passed:
			pass++
		case o == skipped:
			skip++
			t.reasons[cmp.Or(t.output[n], "no reason given")]++
		}
	}
	slices.Sort(failures)
	return pass, fail, skip, failures
}

func main() {
	dir := os.Args[1]
	t := &tally{make(map[name]outcome), make(map[name]float64), make(map[name]string), make(map[string]int), make(map[string]int)}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		if err := t.read(f); err != nil {
			fmt.Println("FAILED:", err)
			defer os.Exit(1)
		}
	}
	pass, fail, skip, failures := t.count()
	steps, _ := os.ReadFile(filepath.Join(dir, "steps"))
	fmt.Println("\nSteps:")
	var total, bad int
	for line := range strings.Lines(string(steps)) {
		var seconds int
		f := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		fmt.Sscan(f[1], &seconds)
		total += seconds
		fmt.Printf("  %-30s %4d min %02d s  %s\n", f[0], seconds/60, seconds%60, f[2])
		switch {
		case f[2] == "FAILED":
			bad++
		case f[2] != "ok":
			skip++
		}
	}
	fmt.Printf("  %-30s %4d min %02d s\n", "all", total/60, total%60)
	slow := slices.SortedFunc(maps.Keys(t.seconds), func(a, b name) int { return cmp.Compare(t.seconds[b], t.seconds[a]) })
	fmt.Println("Slowest tests:")
	for _, n := range slow[:min(10, len(slow))] {
		fmt.Printf("  %6.1f s  %v\n", t.seconds[n], n)
	}
	for _, list := range []struct {
		title string
		of    map[string]int
	}{{"Kernels booted, and in how many tests:", t.kernels}, {"Skipped tests, by reason:", t.reasons}} {
		if len(list.of) > 0 {
			fmt.Println(list.title)
		}
		for _, k := range slices.Sorted(maps.Keys(list.of)) {
			fmt.Printf("  %6d  %s\n", list.of[k], k)
		}
	}
	for _, f := range failures {
		fmt.Println("FAILED:", f)
	}
	// A step that failed without a failing test, as lint, counts itself.
	fail = max(fail, bad)
	fmt.Printf("%d passed, %d failed, %d skipped\n", pass, fail, skip)
	if fail > 0 {
		os.Exit(1)
	}
}
