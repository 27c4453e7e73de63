// Command demo shows Umbra at work. It fetches QEMU and Debian's kernels, starts umbra
// serve with two virtual GPUs on one software card, and boots a stock guest on each.
// Both guests copy at the same time and verify their data. Then one reboots, one
// makes a GPU fault and one reads outside its memory, while the other copies on. Both run
// an OpenCL program with Debian's Mesa. In the end one loses its power.
//
//	go run ./tests/demo [--kernel 6.1,6.12] [--umbra FILE]
//	go run ./tests/demo --pass-through      one guest with the whole card
//	go run ./tests/demo --disable-engines   the control: the copies must fail
//
// Each check prints ok or FAILED. The exit status is 0 only if every check held.
//
// Checks run one after the other. A check of all guests runs a goroutine for each,
// which ends with the check. One more goroutine owns the server process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/tests/nouveau"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// Sizes of the card's and of each virtual GPU's memory.
const (
	cardVRAM  = 1 << 30
	gpuVRAM   = 128 << 20
	maxGuests = 6
)

// mesaVersion is that of Debian's Mesa in the guests.
const mesaVersion = "25"

// patience ends a run that hangs. A busy machine may take ten times as long as an
// idle one.
const patience = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	p := newPrinter(os.Stdout)
	err = run(ctx, o, p)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		p.line("stopped")
	case err != nil:
		p.line("%s", p.paint(red, err.Error()))
	}
	if err != nil {
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	kernels        []string // "" is $UMBRA_KERNEL, or 6.12
	umbra          string
	passThrough    bool
	disableEngines bool
}

func parse(args []string) (o options, err error) {
	kernels := ""
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.StringVar(&kernels, "kernel", "", "Debian's kernels, a `LIST` of "+strings.Join(lab.Kernels, ", ")+": one guest for each (default 6.1,6.12)")
	fs.StringVar(&o.umbra, "umbra", "", "the umbra `FILE` to run (default: build one)")
	fs.BoolVar(&o.passThrough, "pass-through", false, "give one guest the whole card")
	fs.BoolVar(&o.disableEngines, "disable-engines", false, "use a card whose engines do nothing: the checks of copies must fail")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", fs.Arg(0))
	}
	o.kernels = []string{"6.1", ""}
	if o.passThrough {
		o.kernels = []string{""}
	}
	if kernels != "" {
		o.kernels = strings.Split(kernels, ",")
	}
	for _, k := range o.kernels {
		if k != "" && !slices.Contains(lab.Kernels, k) {
			return o, fmt.Errorf("--kernel: %q: want one of %s", k, strings.Join(lab.Kernels, ", "))
		}
	}
	switch n := len(o.kernels); {
	case o.passThrough && n != 1:
		return o, fmt.Errorf("--kernel: %d kernels: --pass-through has one guest", n)
	case !o.passThrough && (n < 2 || n > maxGuests):
		return o, fmt.Errorf("--kernel: %d kernels: want 2 to %d, or --pass-through", n, maxGuests)
	}
	if o.umbra != "" {
		if o.umbra, err = filepath.Abs(o.umbra); err == nil {
			_, err = os.Stat(o.umbra)
		}
	}
	return o, err
}

// run makes all checks. It fails unless all of them held.
func run(ctx context.Context, o options, p *printer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	began := time.Now()
	switch {
	case o.passThrough:
		p.line("%s", p.paint(bold, "One Debian guest with a whole software GPU. Takes one to two minutes."))
	default:
		p.line("%s", p.paint(bold, fmt.Sprintf("%d Debian guests share one software GPU. Takes about one minute, up to three.", len(o.kernels))))
	}
	mesa := mesaVersion
	if _, err := exec.LookPath("gcc"); err != nil {
		p.line("There is no gcc, so the guests run no OpenCL program: install gcc and libc6-dev to see that.")
		mesa = ""
	}
	missing, err := lab.Missing(ctx, mesa, o.kernels...)
	if err != nil {
		return err
	}
	if missing > 0 {
		p.line("Fetching QEMU, Linux and programs from Debian, about %d MB, into the cache folder ...", missing)
	}
	p.line("Preparing the guests ...")
	assets, err := lab.Ensure(ctx, p, mesa, o.kernels...)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "umbra-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.umbra == "" {
		p.line("Building umbra ...")
		if o.umbra, err = testserver.BuildUmbra(ctx, dir); err != nil {
			return err
		}
	}
	d := &demo{ctx: ctx, p: p, passThrough: o.passThrough, mesa: mesa}
	for i, a := range assets {
		k, known := nouveau.Of(a.Kernel.Release)
		d.guests = append(d.guests, &guest{
			name: string(rune('a' + i)), version: o.kernels[i], release: a.Kernel.Release,
			kernel: k, known: known, verified: map[string]uint64{},
		})
	}
	text := configuration(d.guests, o)
	p.line("\n  $ umbra serve --config %s", testserver.ConfigFile)
	for l := range strings.Lines(text) {
		p.line("  | %s", strings.TrimRight(l, "\n"))
	}
	p.line("")
	if err := os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(text), 0o644); err != nil {
		return err
	}
	if d.server, err = testserver.StartProcess(ctx, o.umbra, dir); err != nil {
		return err
	}
	defer d.server.Kill()
	defer func() { err = errors.Join(err, d.closeGuests()) }()
	if err := d.all(); err != nil {
		return err
	}
	p.line("%s", p.paint(green, fmt.Sprintf("ok: all %d checks held, in %.0f s, on QEMU %s with %s",
		d.held, time.Since(began).Seconds(), strings.Fields(assets[0].QEMU.Version)[0], strings.ToUpper(d.accel))))
	return nil
}

// configuration is the server's file: a virtual GPU for each guest, or the whole card
// for one.
func configuration(guests []*guest, o options) string {
	card := fmt.Sprintf("card: {kind: soft, vram: %dGiB}\n", cardVRAM>>30)
	if o.disableEngines {
		card = fmt.Sprintf("card: {kind: soft, vram: %dGiB, engines: false}\n", cardVRAM>>30)
	}
	text := "control: " + testserver.ControlSocket + "\n" + card
	if o.passThrough {
		return text + "socket: a.sock\n"
	}
	text += "gpus:\n"
	for _, g := range guests {
		text += fmt.Sprintf("  - {name: %s, socket: %s.sock, vram: %dMiB}\n", g.name, g.name, gpuVRAM>>20)
	}
	return text
}
