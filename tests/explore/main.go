// Explore boots a kernel on a software card, gives the guest program the
// commands of the command line, and shows what came of them: each result and its
// time, what nouveau said, and which registers it used.
//
//	go run ./tests/explore -kernel 6.1 objects 'm2mf {"quick":true}' interrupts
//
// The commands and their arguments are those of package proto.
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
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

type options struct {
	kernel   string
	vram     uint64 // MiB
	noMSI    bool
	engines  bool
	ablate   string
	modprobe bool
	top      int
	commands []string
}

func main() {
	var o options
	flag.StringVar(&o.kernel, "kernel", "6.12", "Debian kernel to boot")
	flag.Uint64Var(&o.vram, "vram", 512, "memory of the card, in MiB")
	flag.BoolVar(&o.noMSI, "no-msi", false, "a card without the MSI capability")
	flag.BoolVar(&o.engines, "engines", true, "let the engines do their work")
	flag.StringVar(&o.ablate, "ablate", "", "leave out a behaviour: a name of gf100.Ablations")
	flag.BoolVar(&o.modprobe, "modprobe", true, "load nouveau before the commands")
	flag.IntVar(&o.top, "top", 20, "registers in the report; 0 for all")
	flag.Parse()
	o.commands = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := explore(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(1)
	}
}

func explore(ctx context.Context, w io.Writer, o options) (err error) {
	card := soft.Config{VRAM: o.vram << 20, PCI: gf100.ConfigOptions{NoMSI: o.noMSI}, DisableEngines: !o.engines}
	if o.ablate != "" {
		a, err := gf100.AblationByName(o.ablate)
		if err != nil {
			return err
		}
		card.Ablate = a.Apply
	}
	s, err := stand.Start(ctx, stand.Config{Card: card, Machine: lab.Config{Kernel: o.kernel, Progress: os.Stderr}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	commands := o.commands
	if o.modprobe {
		commands = append([]string{proto.CmdModprobe + ` {"name":"nouveau"}`}, commands...)
	}
	for _, c := range commands {
		run(ctx, w, s.VM, c)
	}
	if err := said(ctx, w, s.VM); err != nil {
		return err
	}
	r, err := s.Card.Registers().Report(mmio.ByCount)
	if err != nil {
		return err
	}
	return r.WriteText(w, o.top)
}

// run gives the guest one command, "name" or "name {arguments}". That it fails
// is a finding like any other.
func run(ctx context.Context, w io.Writer, vm *lab.VM, command string) {
	name, text, _ := strings.Cut(command, " ")
	var args any
	if text != "" {
		args = json.RawMessage(text)
	}
	var result json.RawMessage
	began := time.Now()
	err := vm.Agent().Call(ctx, name, args, &result)
	fmt.Fprintf(w, "%s: %v", command, time.Since(began).Round(time.Millisecond))
	if err != nil {
		fmt.Fprintf(w, ": %v", err)
	}
	fmt.Fprintf(w, "\n%s\n\n", result)
}

// said shows the kernel's lines about the card, from its console if the guest
// does not answer any more.
func said(ctx context.Context, w io.Writer, vm *lab.VM) error {
	const patience = 20 * time.Second
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lines, err := vm.KernelLog(ask)
	if err != nil {
		fmt.Fprintf(w, "the guest does not answer (%v); its console:\n", err)
		lines = vm.ConsoleLog()
	}
	for _, l := range lines {
		if strings.Contains(l.Text, "nouveau") {
			fmt.Fprintln(w, l)
		}
	}
	_, err = fmt.Fprintln(w)
	return err
}
