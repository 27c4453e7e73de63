// Command realcard shows what guests can do on a card, by steps, on a machine that has nothing but the card and its
// driver: the bundle beside this program has QEMU, a kernel, an image and the programs (tools/real-card).
//
//	run [--card nvidia|soft] [--only STEP,...] [--out DIR] [--guests N]
//
// Started as root, it becomes nobody once the bundle is unpacked: so do the server and its children. It writes results.json
// and results.md after each step, and keeps the logs of guests and servers beside them.
//
// Each step has a time limit. One that does not end in time is given up: its goroutine stays, and later steps
// go on. A step writes its own result only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// envDir names the folder of the unpacked bundle. It is set for the process that is nobody.
const envDir = "UMBRA_REAL_CARD"

// nobody is that user and its group, as Debian and Ubuntu number them.
const nobody = 65534

// The cards.
const (
	soft   = "soft"
	nvidia = "nvidia"
)

// run is one run with its results.
type run struct {
	ctx    context.Context
	card   string
	dir    string // the unpacked bundle
	work   string // sockets
	out    string
	only   []string
	guests int

	results report
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "real-card:", err)
		os.Exit(1)
	}
}

func start() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &run{ctx: ctx, dir: os.Getenv(envDir)}
	flag.StringVar(&r.card, "card", nvidia, "the card: nvidia, by the host's driver, or soft, Umbra's software card")
	only := flag.String("only", "", "the `STEPS` to make: guests-1, guests-1/vkmark, suites, ...")
	flag.StringVar(&r.out, "out", "real-card-results", "the `DIR` for the results")
	flag.IntVar(&r.guests, "guests", 8, "how many guests there are at once")
	flag.Parse()
	if r.card != soft && r.card != nvidia || flag.NArg() > 0 {
		return fmt.Errorf("--card: %q: want %s or %s, and flags only", r.card, nvidia, soft)
	}
	if *only != "" {
		r.only = strings.Split(*only, ",")
	}
	if r.dir == "" {
		return prepare(ctx, r.out)
	}
	defer os.RemoveAll(r.dir)
	if r.work, err = os.MkdirTemp("", "umbra-rc-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	r.out = "." // see prepare
	r.describe()
	for _, n := range []int{1, r.guests} {
		r.guestsAtOnce(n)
	}
	r.suites()
	r.figures()
	r.tenants()
	r.kills()
	return r.results.failed()
}

// prepare unpacks the bundle, and starts this program anew in the folder for results, as nobody if this is root.
func prepare(ctx context.Context, out string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "umbra-real-card-")
	if err != nil {
		return err
	}
	err = errors.Join(os.Chmod(dir, 0o755), unpack(ctx, filepath.Join(filepath.Dir(self), "bundle.tar.xz"), dir))
	if err == nil {
		err = os.MkdirAll(out, 0o755)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	// nobody may be unable to reach the program, and the folder by its path.
	data, err := os.ReadFile(self)
	program := filepath.Join(dir, "run")
	err = errors.Join(err, os.WriteFile(program, data, 0o755))
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(dir, nobody, nobody), os.Chown(out, nobody, nobody), os.Chdir(out),
			syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
	} else {
		err = errors.Join(err, os.Chdir(out))
	}
	if err != nil {
		return err
	}
	env := append(os.Environ(), envDir+"="+dir, "UMBRA_CACHE="+filepath.Join(dir, "cache"), "HOME="+dir)
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), env)
}
