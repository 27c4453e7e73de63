// Command lab gets and starts what the virtual machine tests use, by hand:
//
//	lab fetch [version...]     fetch QEMU and kernels, build guest images
//	lab boot [flags]           boot a guest to its agent, say how long it took
//	lab command [flags]        print a command that starts the same guest on this terminal
//	lab call SOCKET COMMAND... run a command in that guest
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/image"
)

const usage = `lab fetch [version...]     fetch QEMU and kernels, build guest images
lab boot [flags]           boot a guest to its agent, say how long it took
lab command [flags]        print a command that starts the same guest on this terminal
lab call SOCKET COMMAND... run a command in that guest

A guest with the GPU of umbra serve --gpu name=a,socket=/tmp/a.sock,vram=256MiB:

	eval "$(go run ./cmd/lab/cli command -socket /tmp/a.sock)"
	go run ./cmd/lab/cli call /tmp/a.agent.sock modprobe nouveau    # in another terminal

lab boot -h lists the flags, lab call -h shows the form of arguments. lab fetch without
versions fetches all that tests run on, into the cache folder (~/.cache/umbra, or UMBRA_CACHE).
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", strings.TrimPrefix(err.Error(), "lab: ")) // the package says its name, too
		stop()
		os.Exit(1)
	}
}

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || isHelp(args[0]) || args[0] == "fetch" && len(args) > 1 && isHelp(args[1]) {
		fmt.Print(usage)
		return nil
	}
	if args[0] == "fetch" {
		if len(args) > 1 && strings.HasPrefix(args[1], "-") {
			return fmt.Errorf("fetch: %s: takes kernel versions only, such as 6.12", args[1])
		}
		return fetchAll(ctx, args[1:])
	}
	if args[0] == "call" {
		return call(ctx, os.Stdout, args[1:])
	}
	cfg := lab.Config{Progress: os.Stderr}
	var appended string
	fs := flag.NewFlagSet("lab "+args[0], flag.ContinueOnError)
	fs.StringVar(&cfg.Kernel, "kernel", "", "kernel `version`: 6.1, 6.12, 7.2, ... (default "+fetch.DefaultKernel+", for a GH100 7.2, or that of "+fetch.EnvKernel+"), or the path of a bzImage")
	fs.StringVar(&cfg.Modules, "modules", "", "`folder` of a bzImage's modules, lib/modules/RELEASE")
	fs.StringVar(&cfg.Accel, "accel", "", "kvm or tcg (default what works)")
	fs.StringVar(&cfg.CPU, "cpu", "", "processor `model` (default "+lab.DefaultCPU+" under tcg, host under kvm)")
	fs.IntVar(&cfg.CPUs, "cpus", lab.DefaultCPUs, "processors")
	fs.IntVar(&cfg.Memory, "memory", 0, fmt.Sprintf("guest memory, `MiB` (default %d, %d with -mesa, and %d more with -chip gh100)", lab.DefaultMemory, lab.MesaMemory, lab.FirmwareMemory))
	fs.StringVar(&cfg.Chip, "chip", "", "the `chip` of the guest's GPU, "+lab.ChipGF100+" or "+lab.ChipGH100+", which needs firmware in the guest (default "+lab.ChipGF100+")")
	fs.StringVar(&appended, "append", "", "`words` for the kernel's command line")
	fs.StringVar(&cfg.Mesa, "mesa", "", "have Debian's Mesa and OpenCL, or Vulkan on a GH100, of this `version` in the guest: 25 or 26; or one that you built, by its prefix")
	fs.Var((*list)(&cfg.Programs), "program", "C `source` to compile against it, as "+image.ProgramsDir+"/NAME in the guest; may be repeated")
	fs.BoolVar(&cfg.Tools, "tools", false, "have clpeak, piglit's OpenCL tests, and the compiler tcc in the guest, too; the sources of programs are in "+image.ProgramsDir)
	fs.StringVar(&cfg.Dir, "dir", "", "`folder` to keep logs in")
	fs.Var((*list)(&cfg.Sockets), "socket", "vfio-user `socket` of a device; may be repeated")
	if err := fs.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q: flags only", fs.Arg(0))
	}
	cfg.Append = strings.Fields(appended)
	switch args[0] {
	case "boot":
		return boot(ctx, cfg)
	case "command":
		line, err := lab.Command(ctx, cfg)
		fmt.Println(line)
		return err
	default:
		return fmt.Errorf("%q: want fetch, boot, command or call", args[0])
	}
}

func isHelp(word string) bool {
	return slices.Contains([]string{"-h", "-help", "--help", "help"}, word)
}

func fetchAll(ctx context.Context, versions []string) error {
	var machines []lab.Config
	if len(versions) == 0 {
		versions = lab.Kernels
		machines = append(machines, lab.Config{Chip: lab.ChipGH100, Mesa: "26"}) // which have no image until they start
	}
	for _, v := range versions {
		machines = append(machines, lab.Config{Kernel: v})
	}
	assets, err := lab.Ensure(ctx, os.Stderr, machines...)
	assets = slices.DeleteFunc(assets, func(a lab.Assets) bool { return a.Image == "" })
	for i, a := range assets {
		if i == 0 {
			fmt.Printf("QEMU   %s\n", a.QEMU.Version)
		}
		fmt.Printf("Linux  %-24s package %s\n", a.Kernel.Release, a.Kernel.Version)
		fmt.Printf("       image %s\n       modules %s\n", a.Image, strings.Join(a.Kernel.Loadable, " "))
	}
	return err
}

func boot(ctx context.Context, cfg lab.Config) error {
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer vm.Close()
	ready, err := vm.Agent().Ready(ctx, 1)
	if err != nil {
		return err
	}
	fmt.Printf("Linux %s under %s (%s): agent after %.2f s, guest clock %.2f s\n",
		ready.Kernel, vm.Accel().Name, vm.Accel().Reason, time.Since(vm.Began()).Seconds(), ready.Uptime)
	return vm.Close()
}
