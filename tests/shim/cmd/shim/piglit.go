package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
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
	version := flags.String("mesa", "25", "version of Mesa: 25 or 26")
	match := flags.String("match", "", "only tests whose path contains this")
	every := flags.Int("every", 1, "only one of so many tests")
	jobs := flags.Int("jobs", 1, "how many tests run at once")
	name := flags.String("results", "", "file that results are appended to; tests that it has are not run again")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := &piglitRun{done: make(map[string]shim.PiglitResult)}
	var err error
	if p.reasons, err = shim.PiglitReasons(); err != nil {
		return err
	}
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
	tests, err := hosts[0].PiglitTests()
	if err != nil {
		return err
	}
	seen := 0
	for _, test := range tests {
		if !strings.Contains(test, *match) {
			continue
		}
		if seen++; (seen-1)%max(*every, 1) == 0 {
			p.tests = append(p.tests, test)
		}
	}
	if seen == 0 {
		return fmt.Errorf("-match %s: no test's path contains it", *match)
	}
	if err := p.run(ctx, hosts); err != nil {
		return err
	}
	return p.report()
}

// piglitRun is the run of a list of tests.
type piglitRun struct {
	tests   []string
	reasons map[string]shim.PiglitReason
	file    *os.File // of results, may be nil
	rest    []string // tests without earlier results

	mu   sync.Mutex // guards what follows
	done map[string]shim.PiglitResult
	errs []error
	ran  int // tests, of those to run
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

func (p *piglitRun) run(ctx context.Context, hosts []*shim.Host) error {
	for _, test := range p.tests {
		if _, ok := p.done[test]; !ok {
			p.rest = append(p.rest, test)
		}
	}
	queue := make(chan string)
	var working sync.WaitGroup
	for _, host := range hosts {
		working.Go(func() {
			for test := range queue {
				r, err := host.Piglit(ctx, test)
				p.add(test, r, err)
			}
		})
	}
	for _, test := range p.rest {
		select {
		case queue <- test:
		case <-ctx.Done():
		}
	}
	close(queue)
	working.Wait()
	return errors.Join(append(p.errs, ctx.Err())...)
}

func (p *piglitRun) add(test string, r shim.PiglitResult, err error) {
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
	fmt.Printf("%d of %d\t%s", p.ran, len(p.rest), line)
}

func (p *piglitRun) report() error {
	counted, passed, unexplained, ofMesa := 0, 0, 0, 0
	for _, test := range p.tests {
		r := p.done[test]
		switch class := p.reasons[test].Class; {
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
