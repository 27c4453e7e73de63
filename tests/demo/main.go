// Command demo shows Umbra at work. It fetches QEMU and Debian's kernels, starts umbra
// serve with two virtual GPUs on one software card, and boots a stock guest on each.
// Both guests copy at the same time and verify their data. Then one reboots, one
// makes a GPU fault and one reads outside its memory, while the other copies on. Both run
// an OpenCL program with Debian's Mesa. In the end one loses its power.
//
//	go run ./tests/demo [--kernel 6.1,6.12] [--umbra FILE]
//	go run ./tests/demo --chip gh100        guests with a GH100 each, and one with a GF100
//	go run ./tests/demo --disable-engines   the control: the copies must fail
//
// Each check prints ok or FAILED. The exit status is 0 only if every check held.
//
// Checks run one after the other. A check of all guests runs a goroutine for each,
// which ends with the check. One more goroutine owns the server process.
package main

import (
	"cmp"
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

// patience ends a run that hangs. A busy machine may take ten times as long as an
// idle one.
const patience = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chipName := flag.String("chip", "gf100", "the GPU of the guests: gf100 or gh100. Beside guests with a GH100 there is one with a GF100")
	kernels := flag.String("kernel", "", "Debian's kernels, a `LIST` of 2 to 6: one guest for each (default 6.1,6.12, or 7.2,7.2 with a GH100)")
	umbra := flag.String("umbra", "", "the umbra `FILE` to run (default: build one)")
	disabled := flag.Bool("disable-engines", false, "use a card whose engines do nothing: the checks of copies must fail")
	flag.Parse()
	i := slices.IndexFunc(chips, func(c *chip) bool { return c.name == *chipName })
	if i < 0 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: --chip: %q: want gf100 or gh100, and flags only\n", *chipName)
		os.Exit(2)
	}
	c := chips[i]
	versions := strings.Split(cmp.Or(*kernels, c.usual), ",")
	unknown := slices.ContainsFunc(versions, func(k string) bool { return !slices.Contains(c.kernels, k) })
	if unknown || len(versions) < 2 || len(versions) > 6 {
		fmt.Fprintf(os.Stderr, "demo: --kernel: %q: want 2 to 6 of %s for a %s\n", *kernels, strings.Join(c.kernels, ", "), c.shows)
		os.Exit(2)
	}
	if err := run(ctx, c, versions, *umbra, *disabled); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			err = errors.New("stopped")
		}
		fmt.Println(err)
		os.Exit(1)
	}
}

// progress shows that of fetching and building.
type progress struct{}

func (progress) Write(b []byte) (int, error) {
	return fmt.Printf("  %s\n", strings.TrimRight(string(b), "\n"))
}

// plan makes a guest of each kernel with a GPU of the chip. A GF100 is beside other chips, with a kernel that
// is there already and without Mesa.
func (d *demo) plan(of *chip, kernels []string) error {
	_, err := exec.LookPath("gcc")
	if err != nil {
		fmt.Printf("There is no gcc, so the guests run no %s program: install gcc and libc6-dev to see that.\n", of.api)
	}
	add := func(c *chip, kernel string, mesa bool) error {
		m, err := c.machine(kernel, mesa)
		d.guests = append(d.guests, &guest{chip: c, name: string(rune('a' + len(d.guests))), machine: m, verified: map[string]uint64{}})
		return err
	}
	mesa := err == nil
	for i, k := range kernels {
		if err := add(of, k, mesa); err != nil {
			return err
		}
		if i == 0 && of != chips[0] {
			if err := add(chips[0], "7.2", false); err != nil {
				return err
			}
		}
	}
	return nil
}

// run makes all checks. It fails unless all of them held.
func run(ctx context.Context, of *chip, kernels []string, umbra string, disabled bool) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	began := time.Now()
	d := &demo{ctx: ctx}
	if err := d.plan(of, kernels); err != nil {
		return err
	}
	fmt.Printf("%d Debian guests share one software GPU. Takes about one minute, up to three.\n", len(d.guests))
	fmt.Println("Preparing the guests; what is missing of QEMU, Linux, firmware and Mesa is fetched from Debian ...")
	var machines []lab.Config
	for _, g := range d.guests {
		machines = append(machines, g.machine)
	}
	assets, err := lab.Ensure(ctx, progress{}, machines...)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "umbra-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if umbra == "" {
		fmt.Println("Building umbra ...")
		if umbra, err = testserver.BuildUmbra(ctx, dir); err != nil {
			return err
		}
	}
	if umbra, err = filepath.Abs(umbra); err != nil {
		return err
	}
	room, gpus := 0, ""
	for i, g := range d.guests {
		g.release = assets[i].Kernel.Release
		g.kernel, _ = nouveau.Of(g.lab, g.release)
		room += g.card
		gpus += fmt.Sprintf("  - {name: %s, socket: %s.sock, chip: %s, vram: %s}\n", g.name, g.name, g.chip.name, g.option)
	}
	config := fmt.Sprintf("control: %s\ncard: {kind: soft, vram: %dMiB, engines: %v}\ngpus:\n%s", testserver.ControlSocket, max(1024, room), !disabled, gpus)
	fmt.Printf("\n  $ umbra serve --config %s\n  | %s\n\n", testserver.ConfigFile, strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n  | "))
	if err := os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(config), 0o644); err != nil {
		return err
	}
	if d.server, err = testserver.StartProcess(ctx, umbra, dir); err != nil {
		return err
	}
	defer d.server.Kill()
	defer func() {
		for _, g := range d.guests {
			if g.vm != nil {
				err = errors.Join(err, g.vm.Close())
			}
		}
	}()
	if err := d.all(); err != nil {
		return err
	}
	fmt.Printf("ok: all %d checks held, in %.0f s, on QEMU %s with %s\n",
		d.held, time.Since(began).Seconds(), strings.Fields(assets[0].QEMU.Version)[0], strings.ToUpper(d.guests[0].vm.Accel().Name))
	return nil
}
