package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

type labCmd struct {
	Run labRunCmd `cmd:"" help:"Boot a stock guest on a GPU of its own, and run a program there."`
}

// labRunCmd needs the project's sources and Go: they build the guest's part.
type labRunCmd struct {
	Kernel  string `placeholder:"VERSION" help:"Debian's kernel of the guest: 6.1, 6.12, 7.2 and more; or the bzImage of your own, with a / in its name."`
	Modules string `placeholder:"FOLDER" help:"The modules of your own kernel, lib/modules/RELEASE. Without it, those of this machine if it has them."`
	Mesa    string `placeholder:"VERSION" help:"Debian's Mesa in the guest: 25, or 26, which a gh100 has; or the prefix of your own, where meson installed it, with a / in its name."`
	Chip    string `default:"gf100" enum:"gf100,gh100" help:"The chip of its GPU: gf100 runs programs, gh100 copies."`
	Memory  int    `placeholder:"MIB" help:"Memory of the guest, in MiB."`
	Dir     string `placeholder:"FOLDER" help:"Keep the guest's console there."`

	Verbose bool `short:"v" help:"Say how long each step took."`

	Program []string `arg:"" passthrough:"partial" help:"C source, an executable file of this machine, or a command of the guest, with its arguments. A name with a / is of this machine. umbra lab run ends with its exit status."`
}

// ended is the exit status of a program, where it is not 0.
type ended int

func (e ended) Error() string { return fmt.Sprintf("the program ended with status %d", int(e)) }

// labGPUs describes the server of a guest by the chip of its GPU, with the Mesa for it.
var labGPUs = map[string]struct{ mesa, server string }{
	lab.ChipGF100: {"25", "card: {vram: 1GiB}\ngpus: [{name: gpu, vram: 768MiB, chip: gf100, socket: %q}]"},
	lab.ChipGH100: {"26", "card: {vram: 8GiB}\ngpus: [{name: gpu, vram: 4GiB, chip: gh100, socket: %q}]"},
}

func (c *labRunCmd) Run(ctx context.Context, out output) (err error) {
	for _, name := range []*string{&c.Kernel, &c.Modules, &c.Mesa, &c.Dir} {
		*name = atHome(*name)
	}
	argv := c.Program
	cfg := lab.Config{Kernel: c.Kernel, Modules: c.Modules, Chip: c.Chip, Mesa: cmp.Or(c.Mesa, labGPUs[c.Chip].mesa), Memory: c.Memory, Dir: c.Dir, Progress: out.stderr}
	info, noFile := os.Stat(argv[0])
	if named := strings.Contains(argv[0], "/") || strings.HasSuffix(argv[0], ".c"); named && noFile != nil {
		return badFile(argv[0], noFile)
	} else if named || noFile == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		cfg.Programs, cfg.Only = []string{argv[0]}, true
		argv = append([]string{strings.TrimSuffix(filepath.Base(argv[0]), ".c")}, argv[1:]...)
	}
	if err := cfg.Check(); err != nil {
		return &config.Error{Where: "umbra lab run", Reason: err.Error()}
	}
	last := time.Now()
	cfg.Step = func(step string) {
		if now := time.Now(); c.Verbose {
			fmt.Fprintf(out.stderr, "umbra: %5.2f s  %s\n", now.Sub(last).Seconds(), step)
			last = now
		}
	}
	dir, err := os.MkdirTemp("", "umbra-run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := serveGPU(ctx, c.Chip, filepath.Join(dir, "gpu.sock"), out)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.Close()) }()
	cfg.Step("start the server")
	cfg.Sockets = []string{filepath.Join(dir, "gpu.sock")}
	vm, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, vm.Close()) }()
	if err := vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil); err != nil {
		return err
	}
	cfg.Step("load nouveau")
	var r proto.RunResult
	err = vm.Agent().Call(ctx, proto.CmdRun, proto.RunArgs{Argv: argv}, &r)
	cfg.Step("run the program")
	fmt.Fprint(out.stdout, r.Output)
	if err != nil && r.Exit <= 0 && r.Signal == 0 { // it did not run
		return err
	}
	report, err := server.Report()
	if err == nil {
		fmt.Fprint(out.stderr, found(&report.GPUs[0]))
	}
	if status, err := server.Status(); err == nil && c.Chip == lab.ChipGF100 { // which runs programs
		var b strings.Builder
		programText(&b, &status.Card)
		fmt.Fprint(out.stderr, b.String())
	}
	if err != nil {
		return err
	}
	return outcome(&r, &report.GPUs[0], out.stderr)
}

// outcome is the status of a program that ran. Mesa may tell a program nothing of work that was ended, and it succeeds then.
func outcome(r *proto.RunResult, g *api.GPUReport, stderr io.Writer) error {
	switch {
	case r.Signal != 0:
		fmt.Fprintf(stderr, "umbra: a signal ended the program: %v\n", syscall.Signal(r.Signal))
		return ended(128 + r.Signal) // as a shell has it
	case r.Exit != 0:
		return ended(r.Exit & 0xff)
	case g.Counts["runaways"] > 0:
		return errors.New("the program ended with status 0, although its work on the GPU was ended; what it says may be wrong")
	}
	return nil
}

// atHome is a name below the user's folder if it begins with ~, which no shell expands in --mesa=~/mesa.
func atHome(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return name
}

// library finds libLLVM for programs of a gf100, "" if it cannot be had: they run interpreted then.
func library(ctx context.Context, chip string) string {
	dir, err := fetch.DefaultDir()
	if chip != lab.ChipGF100 || err != nil {
		return ""
	}
	l, err := (&fetch.Cache{Dir: dir, Progress: os.Stderr}).LLVM(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "umbra lab run:", err)
	}
	return l.File
}

func serveGPU(ctx context.Context, chip, socket string, out output) (*serve.Server, error) {
	o := config.Default()
	// Without a scheduler there would be no limits.request, and a program without end would not end.
	text := "scheduler: {policy: none}\n" + fmt.Sprintf(labGPUs[chip].server, socket)
	if err := errors.Join(o.Parse("the configuration of umbra lab run", []byte(text)), o.Check()); err != nil {
		return nil, err
	}
	o.Card.LLVM = library(ctx, chip)
	log := slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	plan, err := serve.NewPlan(o, false, log)
	if err != nil {
		return nil, err
	}
	return plan.Start(nil)
}

// found says what the server saw of a guest.
func found(g *api.GPUReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "umbra: %d traps, %d interrupts, %d bytes moved by engines\n", g.Traps, g.Interrupts, g.Bytes)
	for _, x := range g.Stopped {
		fmt.Fprintf(&b, "umbra: channel %d was stopped: %s\n", x.Channel, x.Reason)
	}
	if n := g.Counts["runaways"]; n > 0 {
		fmt.Fprintf(&b, "umbra: %s ran longer than limits.request, which ended its channel\n", plural(n, "request", "requests"))
	}
	for rule, n := range g.RulesBroken {
		if n > 0 {
			fmt.Fprintf(&b, "umbra: rule %s was broken %d times\n", rule, n)
		}
	}
	if g.Quarantine != "" {
		fmt.Fprintf(&b, "umbra: the guest was quarantined: %s\n", g.Quarantine)
	}
	return b.String()
}
