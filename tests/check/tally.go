package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An event is one line of go test -json (see go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build event
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
	Key, Value  string // of an attribute
}

// A testName is a test of a package; the test "" is the package itself.
type testName struct{ pkg, test string }

func (n testName) String() string {
	short := strings.TrimPrefix(n.pkg, "github.com/umbra-gpu/umbra/")
	if n.test == "" {
		return short
	}
	return short + " " + n.test
}

// A verdict of a test, the one that counts most last.
type verdict int

const (
	skipped verdict = iota
	passed
	failed
)

// tally is the outcome of all tests of all steps.
type tally struct {
	executions int // tests that were run, each as often as it was
	verdicts   map[testName]verdict
	reasons    map[testName]string // of skips
	kernels    map[string]int      // what was booted, and by how many tests
}

func (t *tally) settle(n testName, v verdict) {
	if t.verdicts == nil {
		t.verdicts = make(map[testName]verdict)
	}
	if old, known := t.verdicts[n]; !known || v > old {
		t.verdicts[n] = v
	}
}

func (t *tally) fuzzed(pkg, target string, err error) {
	v := passed
	if err != nil {
		v = failed
	}
	t.executions++
	t.settle(testName{pkg, target}, v)
}

// counts returns how many tests came out how. A test with subtests counts only
// if it failed and none of them did.
func (t *tally) counts() (pass, fail, skip int) {
	parents := make(map[testName]bool)
	failedBelow := make(map[testName]bool)
	for n, v := range t.verdicts {
		for i, r := range n.test {
			if r == '/' {
				p := testName{n.pkg, n.test[:i]}
				parents[p] = true
				if v == failed {
					failedBelow[p] = true
				}
			}
		}
		if n.test != "" && v == failed {
			failedBelow[testName{n.pkg, ""}] = true
		}
	}
	for n, v := range t.verdicts {
		switch {
		case v == failed && !failedBelow[n]:
			fail++
		case n.test == "" || parents[n]:
		case v == passed:
			pass++
		case v == skipped:
			skip++
		}
	}
	return pass, fail, skip
}

// of lists the tests with a verdict, sorted.
func (t *tally) of(v verdict) []testName {
	var out []testName
	for n, got := range t.verdicts {
		if got == v {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b testName) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (t *tally) kernelList() []string { return slices.Sorted(maps.Keys(t.kernels)) }

// A testRun takes in the events of one go test.
type testRun struct {
	t       *tally
	out     io.Writer
	verbose bool
	output  map[testName][]string // of tests that go on
	build   map[string][]string   // compiler messages by import path
	count   map[string]int        // finished tests by package
	open    map[testName]bool
}

func (t *tally) begin(out io.Writer, verbose bool) *testRun {
	return &testRun{
		t: t, out: out, verbose: verbose,
		output: make(map[testName][]string), build: make(map[string][]string),
		count: make(map[string]int), open: make(map[testName]bool),
	}
}

func (r *testRun) line(b []byte) {
	var e event
	if err := json.Unmarshal(b, &e); err != nil || e.Action == "" {
		fmt.Fprintf(r.out, "%s", b) // not an event: the go command has something to say
		return
	}
	n := testName{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.build[e.ImportPath] = append(r.build[e.ImportPath], e.Output)
	case "start", "run":
		r.open[n] = true
	case "output":
		r.output[n] = append(r.output[n], e.Output)
	case "attr":
		r.attribute(e)
	case "pass", "fail", "skip":
		r.finish(n, e)
	}
}

func (r *testRun) attribute(e event) {
	if e.Key != "kernel" {
		return
	}
	if r.t.kernels == nil {
		r.t.kernels = make(map[string]int)
	}
	r.t.kernels[e.Value]++
}

var verdicts = map[string]verdict{"pass": passed, "fail": failed, "skip": skipped}

func (r *testRun) finish(n testName, e event) {
	delete(r.open, n)
	v := verdicts[e.Action]
	if n.test == "" {
		r.finishPackage(n, e, v)
		return
	}
	r.t.executions++
	r.count[n.pkg]++
	r.t.settle(n, v)
	if v == skipped {
		if r.t.reasons == nil {
			r.t.reasons = make(map[testName]string)
		}
		r.t.reasons[n] = skipReason(r.output[n])
	}
	if v == failed {
		r.print(r.output[n])
	} else if r.verbose || !strings.Contains(n.test, "/") && e.Elapsed >= 5 {
		fmt.Fprintf(r.out, "   %-7s %s (%.1f s)\n", e.Action, n, e.Elapsed)
	}
	delete(r.output, n)
}

func (r *testRun) finishPackage(n testName, e event, v verdict) {
	if v == failed {
		r.print(r.build[e.FailedBuild])
		r.print(r.output[n])
		r.t.settle(n, failed)
	}
	if count := r.count[n.pkg]; count > 0 || v == failed {
		word := map[verdict]string{failed: "FAIL", passed: "ok", skipped: "skip"}[v]
		fmt.Fprintf(r.out, "%-4s %-34s %6.1f s %5d tests\n", word, n, e.Elapsed, count)
	}
	delete(r.output, n)
}

// end counts what never finished as failed: go test died.
func (r *testRun) end() {
	for n := range r.open {
		r.t.settle(n, failed)
		r.print(r.output[n])
		fmt.Fprintf(r.out, "FAIL %s did not finish\n", n)
	}
}

func (r *testRun) print(lines []string) {
	for _, l := range lines {
		fmt.Fprint(r.out, l)
	}
}

var sourceLine = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// skipReason finds what t.Skip was given in a test's output.
func skipReason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		if at := sourceLine.FindStringIndex(l); at != nil {
			return strings.TrimSpace(l[at[1]:])
		}
	}
	return "no reason given"
}
