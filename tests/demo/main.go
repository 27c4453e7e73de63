// Command demo shows the whole at work: it fetches what is missing, starts umbra
// serve with several virtual GPUs on one software card, boots a QEMU guest with a
// stock Debian kernel on each, has all of them use their GPU at the same time and
// some of them misbehave, and reports what guests and server each say of it.
//
//	go run ./tests/demo [--kernel 6.1,6.12,7.2] [--umbra FILE] [--json]
//	go run ./tests/demo --pass-through [--kernel 6.12] [--json]
//
// The server is the command itself, in a process of its own, looked at as its users
// do: through umbra status, umbra regs, its control socket and its log.
//
// With --pass-through one guest has a whole card, with nothing in between. Card,
// server and machine are then in this process, so that the report shows the card's
// own counters beside the guest's figures.
//
// Each check says ok or FAILED; the exit code is 0 only if every check held. With
// --json the report is one JSON document on the standard output, and progress goes
// to the standard error.
//
// Steps run on the caller's goroutine, one after the other; what is done on all
// machines at once has a goroutine for each, which ends with the step. One more holds
// the server's thread, and ends with the server. printer.mu is the only lock: one line
// at a time.
package main

import (
	"context"
	"encoding/json"
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

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the command line.
type options struct {
	kernels        []string // "" is $UMBRA_KERNEL, or the default one
	umbra          string
	json           bool
	passThrough    bool
	disableEngines bool
}

// Without --kernel these are shown: the user's own or the default one, and beside
// it the newest.
var (
	sharedKernels = []string{"", "7.2"}
	wholeKernels  = []string{""}
)

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	o, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, errSaid) {
			fmt.Fprintln(stderr, "demo:", err)
		}
		return exitUsage
	}
	to := stdout
	if o.json {
		to = stderr
	}
	p := &printer{w: to, colour: colours(to), live: isTerminal(to)}
	var res any
	var out *outcome
	var report func() error
	if o.passThrough {
		r := showPassThrough(ctx, o, p)
		res, out, report = r, &r.outcome, func() error { return p.report(r) }
	} else {
		r := showShared(ctx, o, p)
		res, out, report = r, &r.outcome, func() error { return p.sharedReport(r) }
	}
	if o.json {
		return finish(stderr, out, writeJSON(stdout, res))
	}
	return finish(stderr, out, report())
}

// errSaid is an error that the flag library has written already.
var errSaid = errors.New("usage")

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	kernels := ""
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&kernels, "kernel", "", "Debian's kernels, `LIST` of "+strings.Join(lab.Kernels, ", ")+": a guest for each; without it $UMBRA_KERNEL or 6.12, and 7.2")
	fs.StringVar(&o.umbra, "umbra", "", "the umbra to run, a `FILE`; without it one is built")
	fs.BoolVar(&o.json, "json", false, "write the report as JSON")
	fs.BoolVar(&o.passThrough, "pass-through", false, "give one guest the whole card, with nothing in between")
	fs.BoolVar(&o.disableEngines, "disable-engines", false, "the control: a card whose engines do nothing, so that what moves data must fail")
	if fs.Parse(args) != nil {
		return o, errSaid
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("%q: there are no arguments, only options", fs.Arg(0))
	}
	o.kernels = sharedKernels
	if o.passThrough {
		o.kernels = wholeKernels
	}
	if kernels != "" {
		o.kernels = strings.Split(kernels, ",")
		for _, k := range o.kernels {
			if !slices.Contains(lab.Kernels, k) {
				return o, fmt.Errorf("--kernel: %q: it can be one of %s", k, strings.Join(lab.Kernels, ", "))
			}
		}
	}
	switch n := len(o.kernels); {
	case o.passThrough && n > 1:
		return o, fmt.Errorf("--kernel: %s: with --pass-through there is one guest; name one kernel", kernels)
	case o.passThrough && o.umbra != "":
		return o, fmt.Errorf("--umbra: %s: with --pass-through no umbra serve is started; leave one of them out", o.umbra)
	case !o.passThrough && (n < 2 || n > maxGuests):
		return o, fmt.Errorf("--kernel: %s: %d guests; name 2 to %d kernels, or add --pass-through to give one guest the whole card", kernels, n, maxGuests)
	}
	if o.umbra != "" {
		var err error
		if o.umbra, err = filepath.Abs(o.umbra); err != nil {
			return o, err
		}
		if _, err := os.Stat(o.umbra); err != nil {
			return o, fmt.Errorf("--umbra: %w; make build makes bin/umbra", err)
		}
	}
	return o, nil
}

// finish turns what came of it into an exit code.
func finish(stderr io.Writer, r *outcome, err error) int {
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	if !r.OK {
		return exitFailed
	}
	return exitOK
}

func writeJSON(w io.Writer, r any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}

func colours(f *os.File) bool { return isTerminal(f) && os.Getenv("NO_COLOR") == "" }
