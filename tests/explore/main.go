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
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
)

type options struct {
	kernel   string
	vram     uint64 // MiB
	noMSI    bool
	engines  bool
	ablate   string
	modprobe bool
	top      int
	maps     string
	cpu      string
	virtual  bool
	poweroff bool
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
	flag.StringVar(&o.maps, "map", "none", "what the machine may map: none, all, or any of bar1, bar3, pramin, rom")
	flag.StringVar(&o.cpu, "cpu", "", "processor model of the machine, such as max; empty for the lab's")
	flag.BoolVar(&o.virtual, "virtual", false, "a virtual GPU on the card, not the card itself")
	flag.BoolVar(&o.poweroff, "poweroff", false, "have the guest shut down after the commands")
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
	maps, err := homes.ParseMap(o.maps)
	if err != nil {
		return err
	}
	s, err := start(ctx, o, card, maps)
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
	if o.poweroff {
		took, err := s.Poweroff(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "poweroff: %v\n\n", took)
	}
	for _, t := range s.traps() {
		fmt.Fprintf(w, "%-14s %8d reads %8d writes %10d bytes\n", t.Region, t.Reads, t.Writes, t.Bytes)
	}
	for _, c := range s.counts() {
		if c.N > 0 {
			fmt.Fprintf(w, "%-28s %d\n", c.Name, c.N)
		}
	}
	r, err := s.registers().Report(mmio.ByCount)
	if err != nil {
		return err
	}
	return r.WriteText(w, o.top)
}

// bench is what is explored: a machine on a card, or on a virtual GPU of one.
type bench struct {
	*stand.Stand
	shared *stand.Shared // nil without
	traps  func() []serve.RegionCount
}

func start(ctx context.Context, o options, c soft.Config, maps homes.Map) (*bench, error) {
	machine := lab.Config{Kernel: o.kernel, CPU: o.cpu, Progress: os.Stderr}
	b := &bench{}
	if !o.virtual {
		c.Map = maps
		cfg := stand.Config{Card: c, Machine: machine, Device: func(c *soft.Card) vfiouser.Device {
			w := serve.Watch(serve.NewPassThrough(c), slog.New(slog.DiscardHandler))
			b.traps = w.Traps
			return w
		}}
		var err error
		b.Stand, err = stand.Start(ctx, cfg)
		return b, err
	}
	share := aggregator.GuestConfig{Name: "gpu", VRAM: c.VRAM, Map: maps}
	c.VRAM += 256 << 20
	s, err := stand.NewShared(c, 0, 0)
	if err != nil {
		return nil, err
	}
	b.shared = s
	if err = s.AddGPU(share); err == nil {
		machine.Sockets = []string{s.GPUs[0].Socket}
		b.traps = s.GPUs[0].Watched.Traps
		b.Stand = &stand.Stand{Card: s.Card}
		b.Stand.VM, err = lab.Start(ctx, machine)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return b, nil
}

func (b *bench) registers() *mmio.Space {
	if b.shared != nil {
		return b.shared.GPUs[0].GPU.Registers()
	}
	return b.Card.Registers()
}

func (b *bench) counts() []homes.Count {
	if b.shared != nil {
		return b.shared.GPUs[0].Guest.Stats().Mapped.Counts()
	}
	return b.Card.Stats().Windows.Counts()
}

// Close ends the machine and what it ran on.
func (b *bench) Close() error {
	if b.shared == nil {
		return b.Stand.Close()
	}
	return errors.Join(b.VM.Close(), b.shared.Close())
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
