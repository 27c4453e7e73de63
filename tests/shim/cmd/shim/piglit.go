package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
)

// piglit writes a line for each test: whether it counts, its results on our card, on one that does
// nothing and on Mesa's renderer. At the end it names failures without a reason in
// testdata/piglit.txt.
func piglit(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("shim piglit", flag.ContinueOnError)
	version := flags.String("mesa", "25", "version of Mesa: 25 or 26; or the prefix of one that you built, with a / in its name")
	match := flags.String("match", "", "only tests whose path contains this")
	every := flags.Int("every", 1, "only one of so many tests")
	jobs := flags.Int("jobs", 1, "how many tests run at once")
	name := flags.String("results", "", "file that results are appended to; tests that it has are not run again")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := &piglitRun{done: make(map[string]shim.PiglitResult)}
	if *name != "" {
		if err := p.resume(*name); err != nil {
			return err
		}
		defer p.file.Close()
	}
	var hosts []*shim.Host
	for range max(1, *jobs) {
		host, err := newHost(ctx, (*fetch.Cache).Tools, *version)
		if err != nil {
			return err
		}
		defer host.Close()
		hosts = append(hosts, host)
	}
	all, err := hosts[0].PiglitTests()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(test string) bool { return !strings.Contains(test, *match) })
	if len(all) == 0 {
		return fmt.Errorf("-match %s: no test's path contains it", *match)
	}
	var tests, rest []string
	for chunk := range slices.Chunk(all, max(*every, 1)) {
		tests = append(tests, chunk[0])
		if _, ok := p.done[chunk[0]]; !ok {
			rest = append(rest, chunk[0])
		}
	}
	shim.PiglitEach(ctx, hosts, rest, func(h *shim.Host, i int) {
		r, err := h.Piglit(ctx, rest[i])
		p.add(rest[i], r, err, len(rest))
	})
	if err := errors.Join(append(p.errs, ctx.Err())...); err != nil {
		return err
	}
	return p.report(tests)
}

// piglitRun is the results of tests.
type piglitRun struct {
	file *os.File // of results, may be nil

	mu   sync.Mutex // guards what follows
	done map[string]shim.PiglitResult
	errs []error
	ran  int // tests, without those of earlier runs
}

// resume reads earlier results.
func (p *piglitRun) resume(name string) error {
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := bufio.NewScanner(strings.NewReader(string(old)))
	for lines.Scan() {
		if f := strings.Split(lines.Text(), "\t"); len(f) == 6 {
			p.done[f[4]] = shim.PiglitResult{Card: f[1], Idle: f[2], Software: f[3], Why: f[5]}
		}
	}
	p.file, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return err
}

func (p *piglitRun) add(test string, r shim.PiglitResult, err error, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	p.done[test] = r
	word := "-"
	if r.Counts() {
		word = "counts"
	}
	line := strings.Join([]string{word, r.Card, r.Idle, r.Software, test, r.Why}, "\t") + "\n"
	if p.file != nil {
		_, err = p.file.WriteString(line)
		p.errs = append(p.errs, err)
	}
	p.ran++
	fmt.Printf("%d of %d\t%s", p.ran, of, line)
}

func (p *piglitRun) report(tests []string) error {
	reasons, err := shim.PiglitReasons()
	if err != nil {
		return err
	}
	counted, passed, unexplained, ofMesa := 0, 0, 0, 0
	for _, test := range tests {
		r := p.done[test]
		switch class := reasons[test]; {
		case !r.Counts():
			continue
		case r.Card == "pass":
			passed++
		case class == "mesa":
			ofMesa++
		case class == "":
			unexplained++
			fmt.Printf("no reason for %s: %s %s\n", r.Card, test, r.Why)
		}
		counted++
	}
	fmt.Printf("%d of %d tests that count pass; Mesa makes wrong programs of %d; %d fail for no known reason\n", passed, counted, ofMesa, unexplained)
	return nil
}
