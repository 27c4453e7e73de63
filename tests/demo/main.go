// Command demo shows the whole at work: it fetches what is missing, puts a
// software GF100 behind a vfio-user socket, boots Debian's kernel with its own
// nouveau on it in QEMU, has a guest program use the GPU, and reports what the
// guest and the card each say of it.
//
//	go run ./tests/demo [--kernel 6.1|6.12|7.2] [--json]
//
// Card, server and machine are in this process, so the report shows the card's
// own counters beside the guest's figures. Each check says ok or FAILED; the exit
// code is 0 only if every check held. With --json the report is one JSON document
// on the standard output, and progress goes to the standard error.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	kernel         string
	json           bool
	disableEngines bool
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	var o options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.kernel, "kernel", "", "Debian's kernel: `"+strings.Join(lab.Kernels, "|")+"`; without it $UMBRA_KERNEL, or 6.12")
	fs.BoolVar(&o.json, "json", false, "write the report as JSON")
	fs.BoolVar(&o.disableEngines, "disable-engines", false, "the control: a card whose engines do nothing, so that what moves data must fail")
	if err := fs.Parse(args); err != nil {
		return exitUsage
	}
	if o.kernel != "" && !slices.Contains(lab.Kernels, o.kernel) {
		fmt.Fprintf(stderr, "demo: --kernel is %q; it can be one of %s\n", o.kernel, strings.Join(lab.Kernels, ", "))
		return exitUsage
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "demo: %q: there are no arguments, only options\n", fs.Arg(0))
		return exitUsage
	}

	to := stdout
	if o.json {
		to = stderr
	}
	p := &printer{w: to, colour: colours(to), live: isTerminal(to)}
	res := show(ctx, o, p)
	if o.json {
		return finish(stderr, res, writeJSON(stdout, res))
	}
	return finish(stderr, res, p.report(res))
}

// finish turns what came of it into an exit code.
func finish(stderr io.Writer, r *result, err error) int {
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	if !r.OK {
		return exitFailed
	}
	return exitOK
}

func writeJSON(w io.Writer, r *result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}

func colours(f *os.File) bool { return isTerminal(f) && os.Getenv("NO_COLOR") == "" }
