// Command demo shows Umbra at work. It fetches QEMU and Debian's kernels, starts umbra
// serve with two virtual GPUs on one software card, and boots a stock guest on each.
// Both guests copy at the same time and verify their data. Then one reboots, one
// makes a GPU fault and one reads outside its memory, while the other copies on. Both run
// an OpenCL program with Debian's Mesa. In the end one loses its power.
//
//	go run ./tests/demo [--kernel 6.1,6.12] [--umbra FILE]
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

// gpuVRAM is the size of each virtual GPU's memory.
const gpuVRAM = 128 << 20

// mesaVersion is that of Debian's Mesa in the guests.
const mesaVersion = "25"

// patience ends a run that hangs. A busy machine may take ten times as long as an
// idle one.
const patience = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kernels := flag.String("kernel", "6.1,6.12", "Debian's kernels, a `LIST` of 2 to 6 of "+strings.Join(lab.Kernels, ", ")+": one guest for each")
	umbra := flag.String("umbra", "", "the umbra `FILE` to run (default: build one)")
	disabled := flag.Bool("disable-engines", false, "use a card whose engines do nothing: the checks of copies must fail")
	flag.Parse()
	versions := strings.Split(*kernels, ",")
	unknown := slices.ContainsFunc(versions, func(k string) bool { return !slices.Contains(lab.Kernels, k) })
	if unknown || len(versions) < 2 || len(versions) > 6 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: --kernel: %q: want 2 to 6 of %s\n", *kernels, strings.Join(lab.Kernels, ", "))
		os.Exit(2)
	}
	if err := run(ctx, versions, *umbra, *disabled); err != nil {
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

// run makes all checks. It fails unless all of them held.
func run(ctx context.Context, kernels []string, umbra string, disabled bool) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	began := time.Now()
	fmt.Printf("%d Debian guests share one software GPU. Takes about one minute, up to three.\n", len(kernels))
	mesa := mesaVersion
	if _, err := exec.LookPath("gcc"); err != nil {
		fmt.Println("There is no gcc, so the guests run no OpenCL program: install gcc and libc6-dev to see that.")
		mesa = ""
	}
	fmt.Println("Preparing the guests; what is missing of QEMU, Linux and Mesa is fetched from Debian ...")
	assets, err := lab.Ensure(ctx, progress{}, mesa, kernels...)
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
	d := &demo{ctx: ctx, mesa: mesa}
	config := fmt.Sprintf("control: %s\ncard: {kind: soft, vram: 1GiB, engines: %v}\ngpus:\n", testserver.ControlSocket, !disabled)
	for i, a := range assets {
		k, _ := nouveau.Of("", a.Kernel.Release)
		g := &guest{name: string(rune('a' + i)), version: kernels[i], release: a.Kernel.Release, kernel: k, verified: map[string]uint64{}}
		d.guests = append(d.guests, g)
		config += fmt.Sprintf("  - {name: %s, socket: %s.sock, vram: %dMiB}\n", g.name, g.name, gpuVRAM>>20)
	}
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
