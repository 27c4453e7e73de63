package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A step is one thing that is checked.
type step struct {
	name, group string
	onRequest   bool // only when asked for by name
	do          func(c *checker, ctx context.Context, r *result) error
}

var steps = []step{
	{name: "gofmt", group: "lint", do: (*checker).gofmt},
	{name: "vet", group: "lint", do: (*checker).vet},
	{name: "staticcheck", group: "lint", do: (*checker).staticcheck},
	{name: "unit", do: (*checker).unit},
	{name: "race", do: (*checker).race},
	{name: "libvfio-user", do: (*checker).cLibrary},
	{name: "vm", do: (*checker).vm},
	{name: "fuzz", onRequest: true, do: (*checker).fuzz},
}

func stepNames() []string {
	var out []string
	for _, s := range steps {
		if s.group != "" && !slices.Contains(out, s.group) {
			out = append(out, s.group)
		}
		out = append(out, s.name)
	}
	return out
}

// modules are the folders with a go.mod of their own whose code is tested. The
// folder tools only pins versions.
var modules = []string{".", "tests/guests"}

// vmPackages boot virtual machines: slow, one at a time, and not under the race
// detector, which would slow the card below what guests put up with.
const vmPackages = "github.com/umbra-gpu/umbra/tests/e2e"

// Time-outs of one package's tests. They end what hangs; nothing is measured by
// them.
const (
	unitTimeout = "25m"
	vmTimeout   = "30m"
)

// A result is what came of one step.
type result struct {
	name    string
	took    time.Duration
	what    string // what it looked at, for people
	skipped string // why it did not run
	err     error
}

// checker runs steps and keeps what came of them.
type checker struct {
	out      io.Writer
	tests    string
	fuzzTime time.Duration
	verbose  bool

	results []result
	tally   tally

	bothMeasured bool // step libvfio-user has had a guest measure both transports
}

func (c *checker) step(ctx context.Context, s step) {
	fmt.Fprintf(c.out, "== %s\n", s.name)
	r := result{name: s.name}
	began := time.Now()
	r.err = s.do(c, ctx, &r)
	if ctx.Err() != nil && r.err == nil {
		r.err = ctx.Err()
	}
	r.took = time.Since(began)
	if r.err != nil {
		fmt.Fprintf(c.out, "FAIL %s: %v\n", s.name, r.err)
	}
	c.results = append(c.results, r)
}

func (c *checker) gofmt(_ context.Context, r *result) error {
	var bad []string
	n := 0
	err := filepath.WalkDir(".", func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || p == "bin") {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || filepath.Ext(p) != ".go" {
			return nil
		}
		n++
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if formatted, err := format.Source(src); err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", p, err))
		} else if !bytes.Equal(src, formatted) {
			bad = append(bad, p)
		}
		return nil
	})
	r.what = fmt.Sprintf("%d files", n)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("run gofmt -w on\n  %s", strings.Join(bad, "\n  "))
	}
	return err
}

func (c *checker) vet(ctx context.Context, r *result) error {
	r.what = fmt.Sprintf("%d modules", len(modules))
	return c.inModules(ctx, "vet", "./...")
}

func (c *checker) staticcheck(ctx context.Context, r *result) error {
	pin, err := filepath.Abs("tools/go.mod")
	if err != nil {
		return err
	}
	r.what = fmt.Sprintf("%d modules", len(modules))
	return c.inModules(ctx, "tool", "-modfile="+pin, "staticcheck", "./...")
}

// inModules runs a go command in every module.
func (c *checker) inModules(ctx context.Context, args ...string) error {
	var errs []error
	for _, dir := range modules {
		cmd := goCommand(ctx, dir, args...)
		cmd.Stdout, cmd.Stderr = c.out, os.Stderr
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("go %s in %s: %w", args[0], dir, err))
		}
	}
	return errors.Join(errs...)
}

func (c *checker) unit(ctx context.Context, r *result) error {
	return c.goTest(ctx, r, func(pkg string) bool { return !isVM(pkg) }, "-timeout="+unitTimeout)
}

func (c *checker) race(ctx context.Context, r *result) error {
	if why := noCompiler(ctx); why != "" {
		r.skipped = "the race detector " + why
		return nil
	}
	return c.goTest(ctx, r, func(pkg string) bool { return !isVM(pkg) }, "-race", "-timeout="+unitTimeout)
}

// noCompiler says what those need who cannot do without a C compiler, "" if there is one.
func noCompiler(ctx context.Context) string {
	out, err := goCommand(ctx, ".", "env", "CC", "CGO_ENABLED").Output()
	if err != nil {
		return ""
	}
	cc, _, _ := strings.Cut(string(out), "\n")
	if _, err := exec.LookPath(strings.TrimSpace(cc)); err != nil {
		return fmt.Sprintf("needs a C compiler (%v): apt-get install gcc libc6-dev", err)
	}
	return ""
}

func (c *checker) vm(ctx context.Context, r *result) error {
	flags := []string{"-timeout=" + vmTimeout, "-p=1"}
	if c.bothMeasured {
		flags = append(flags, "-skip="+libraryMeasures)
	}
	return c.goTest(ctx, r, isVM, flags...)
}

func isVM(pkg string) bool { return pkg == vmPackages || strings.HasPrefix(pkg, vmPackages+"/") }

// goTest runs go test on the packages that want takes, in every module.
func (c *checker) goTest(ctx context.Context, r *result, want func(pkg string) bool, flags ...string) error {
	var errs []error
	before := c.tally.executions
	packages := 0
	for _, dir := range modules {
		list, err := list(ctx, dir, want)
		if err != nil {
			errs = append(errs, err)
		}
		if len(list) == 0 {
			continue
		}
		packages += len(list)
		args := append([]string{"test", "-json", "-count=1"}, flags...)
		if c.tests != "" {
			args = append(args, "-run="+c.tests)
		}
		if err := c.stream(ctx, dir, nil, append(args, list...)); err != nil {
			errs = append(errs, err)
		}
	}
	ran := c.tally.executions - before
	r.what = fmt.Sprintf("%d packages, %d tests", packages, ran)
	if ran == 0 && len(errs) == 0 && c.tests == "" {
		errs = append(errs, errors.New("no test ran"))
	}
	return errors.Join(errs...)
}

func list(ctx context.Context, dir string, want func(pkg string) bool) ([]string, error) {
	cmd := goCommand(ctx, dir, "list", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool { return !want(pkg) }), nil
}

// stream runs go test -json, with more in its environment, and takes in its events.
func (c *checker) stream(ctx context.Context, dir string, env, args []string) error {
	cmd := goCommand(ctx, dir, args...)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	run := c.tally.begin(c.out, c.verbose)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			run.line(line)
		}
		if err != nil {
			break
		}
	}
	run.end()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test in %s: %w", dir, err)
	}
	return nil
}

func (c *checker) fuzz(ctx context.Context, r *result) error {
	var errs []error
	n := 0
	for _, dir := range modules {
		packages, err := list(ctx, dir, func(string) bool { return true })
		if err != nil {
			return err
		}
		for _, pkg := range packages {
			out, err := goCommand(ctx, dir, "test", "-list=^Fuzz", pkg).Output()
			if err != nil {
				errs = append(errs, fmt.Errorf("go test -list in %s: %w", pkg, err))
				continue
			}
			for _, target := range strings.Fields(string(out)) {
				if !strings.HasPrefix(target, "Fuzz") {
					break // the line "ok package time"
				}
				n++
				fmt.Fprintf(c.out, "%s %s\n", pkg, target)
				cmd := goCommand(ctx, dir, "test", "-run=^$", "-fuzz=^"+target+"$", "-fuzztime="+c.fuzzTime.String(), pkg)
				cmd.Stdout, cmd.Stderr = c.out, os.Stderr
				err := cmd.Run()
				c.tally.fuzzed(pkg, target, err)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s %s: %w", pkg, target, err))
				}
			}
		}
	}
	r.what = fmt.Sprintf("%d targets, %v each", n, c.fuzzTime)
	return errors.Join(errs...)
}

// goCommand is a go command in a folder. It is asked to end before it is killed,
// so that tests can stop what they started.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}
