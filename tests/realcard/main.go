// Command realcard shows what guests can do on a card, by steps, on a machine that has nothing but the card and its
// driver: the bundle (tools/real-card) has QEMU, a kernel, an image and the programs. Package start starts it.
//
//	run [--card nvidia|soft] [--only STEP,...] [--out DIR] [--guests N]
//
// It writes results.json and results.md into the working folder after each step, and keeps the logs of guests
// and servers beside them.
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
	"strings"
	"syscall"
	"time"
)

// envDir names the folder of the unpacked bundle, which the run removes.
const envDir = "UMBRA_REAL_CARD"

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
	only   []string
	guests int
	grace  time.Duration // how much longer than its context a step may take before it is given up

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
	r := &run{ctx: ctx, dir: os.Getenv(envDir), grace: 20 * time.Second}
	flag.StringVar(&r.card, "card", nvidia, "the card: nvidia, by the host's driver, or soft, Umbra's software card")
	only := flag.String("only", "", "the `STEPS` to make: guests-1, guests-1/vkmark, suites, ...")
	flag.IntVar(&r.guests, "guests", 8, "how many guests there are at once")
	flag.Parse()
	if r.card != soft && r.card != nvidia || flag.NArg() > 0 {
		return fmt.Errorf("--card: %q: want %s or %s, and flags only", r.card, nvidia, soft)
	}
	if *only != "" {
		r.only = strings.Split(*only, ",")
	}
	if r.dir == "" {
		return errors.New("this runs in a bundle: start run, which tools/real-card builds")
	}
	defer os.RemoveAll(r.dir)
	if r.work, err = os.MkdirTemp("", "umbra-rc-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	r.describe()
	for _, n := range []int{1, r.guests} {
		r.guestsAtOnce(n)
	}
	r.weighed()
	r.otherPrograms()
	r.suites()
	r.figures()
	r.tenants()
	r.kills()
	return r.results.failed()
}
