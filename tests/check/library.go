package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

// The tests that come to something else with the tag libvfiouser.
const (
	libraryTag      = "-tags=libvfiouser"
	libraryMachines = "./tests/e2e/transport"
	// What ran in other steps without the tag, and is the same with it. Whole tests stand first: of
	// patterns that match, go test takes the first, and a pattern for subtests runs the test.
	libraryRepeats = "^TestPlantedFaults$|^TestSuiteOf(Nonsense|EndlessServers)$|^TestScript$|/^native$|^TestMappedRegions$/./^native$"
	// What runs programs that the race detector does not see into: a compiler, the library's samples.
	libraryUnseen = "^TestLibraryAt|OfSamples$"
	// What this step does for both transports, and step vm need not do for one again.
	libraryMeasures = "^TestTrapsThroughQEMU$"
)

var (
	libraryPackages = []string{"./vfiouser/libvfiouser", "./tests/conformance", "./cmd/bench/traps"}
	libraryUsers    = []string{"./cmd/serve", "./cmd/umbra"} // not under the race detector again
)

// cLibrary tests the C library as a transport: the binding, the suite, the
// library's samples, and machines. It builds the library first, in some seconds,
// if it has not been built; where it cannot be had it says so.
func (c *checker) cLibrary(ctx context.Context, r *result) error {
	env, err := c.cLibraryEnv(ctx)
	if errors.Is(err, fetch.ErrUnavailable) {
		r.skipped = strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
		fmt.Fprintf(c.out, "SKIP %s: %s\n", r.name, r.skipped)
		return nil
	}
	if err != nil {
		return err
	}
	before := c.tally.executions
	errs := []error{c.cLibraryLint(ctx, env)}
	test := func(packages []string, skip string, flags ...string) {
		args := append([]string{"test", "-json", "-count=1", libraryTag, "-skip=" + skip}, flags...)
		if c.tests != "" {
			args = append(args, "-run="+c.tests)
		}
		errs = append(errs, c.stream(ctx, ".", env, append(args, packages...)))
	}
	test(slices.Concat(libraryUsers, libraryPackages), libraryRepeats, "-timeout="+unitTimeout)
	test(libraryPackages, libraryUnseen+"|"+libraryRepeats, "-race", "-timeout="+unitTimeout)
	test([]string{libraryMachines}, libraryRepeats, "-timeout="+vmTimeout)
	c.bothMeasured = c.tests == ""
	ran := c.tally.executions - before
	r.what = fmt.Sprintf("%d tests: plain, race detector, virtual machines", ran)
	if ran == 0 && c.tests == "" {
		errs = append(errs, errors.New("no test ran"))
	}
	return errors.Join(errs...)
}

// cLibraryEnv is what the go command needs, of the user's library or of the one
// in the cache.
func (c *checker) cLibraryEnv(ctx context.Context) ([]string, error) {
	if why := noCompiler(ctx); why != "" {
		return nil, fmt.Errorf("%w: libvfio-user %s", fetch.ErrUnavailable, why)
	}
	if env, ok := fetch.OwnLibVFIOUser(); ok {
		return env, nil
	}
	dir, err := fetch.DefaultDir()
	if err != nil {
		return nil, err
	}
	l, err := (&fetch.Cache{Dir: dir, Progress: c.out}).LibVFIOUser(ctx)
	return l.GoEnv(), err
}

// cLibraryLint looks at the code that only the tag has compiled.
func (c *checker) cLibraryLint(ctx context.Context, env []string) error {
	pin, err := filepath.Abs("tools/go.mod")
	if err != nil {
		return err
	}
	var errs []error
	for _, args := range [][]string{
		{"vet", libraryTag},
		{"tool", "-modfile=" + pin, "staticcheck", libraryTag},
	} {
		cmd := goCommand(ctx, ".", append(args, "./vfiouser/libvfiouser", "./tests/conformance/...", libraryMachines)...)
		cmd.Env = append(cmd.Environ(), env...)
		cmd.Stdout, cmd.Stderr = c.out, c.out
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("go %v: %w", args, err))
		}
	}
	return errors.Join(errs...)
}
