package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// server is the running server that a subcommand talks to.
type server struct {
	control
	JSON bool `name:"json" help:"Write JSON, as docs/control-api.md describes it."`
}

// control is where the server of a command is.
type control struct {
	Control string `env:"UMBRA_CONTROL" placeholder:"PATH" help:"Control socket of the server, as given to umbra serve --control. By default $XDG_RUNTIME_DIR/umbra.sock or /run/umbra/control.sock, where one is."`
}

// client returns a client of the server.
func (s *control) client() (*api.Client, error) {
	path := s.Control
	if path == "" {
		path = api.FindControl()
	}
	if path == "" {
		return nil, &config.Error{Where: "--control", Reason: "missing, and no server listens at " + strings.Join(api.DefaultPaths(), " or ") + "; give the path that umbra serve was started with, here or in the variable UMBRA_CONTROL"}
	}
	return api.NewClient(path), nil
}

// ask sends a request to the server, and writes the answer as JSON or text.
func ask[T any](s *server, out output, request func(*api.Client) (T, error), text func(*strings.Builder, *T)) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	answer, err := request(client)
	if err != nil {
		return err
	}
	if s.JSON {
		return json.NewEncoder(out.stdout).Encode(answer)
	}
	var b strings.Builder
	text(&b, &answer)
	_, err = io.WriteString(out.stdout, b.String())
	return err
}

type statusCmd struct{ server }

func (c *statusCmd) Run(ctx context.Context, out output) error {
	return ask(&c.server, out, func(k *api.Client) (api.Status, error) { return k.Status(ctx) }, statusText)
}

type gpuCmd struct {
	List   gpuListCmd   `cmd:"" help:"List the GPUs of a running server."`
	Show   gpuShowCmd   `cmd:"" help:"Show everything about one GPU: its options and its counts."`
	Attach gpuAttachCmd `cmd:"" help:"Print the arguments that attach a machine to a GPU."`
	Add    gpuAddCmd    `cmd:"" help:"Add a virtual GPU to a running server."`
	Set    gpuSetCmd    `cmd:"" help:"Change options of a virtual GPU while its guest runs."`
	Inject gpuInjectCmd `cmd:"" help:"Plant a fault in a GPU, to test its guest's driver; needs umbra serve --inject."`
	Remove gpuRemoveCmd `cmd:"" help:"Remove a virtual GPU and give its share of the card back."`
}

type gpuListCmd struct{ server }

func (c *gpuListCmd) Run(ctx context.Context, out output) error {
	return ask(&c.server, out, func(k *api.Client) ([]api.GPU, error) {
		s, err := k.Status(ctx)
		return s.GPUs, err
	}, func(b *strings.Builder, gpus *[]api.GPU) { gpuTable(b, *gpus, true) })
}

type gpuShowCmd struct {
	server
	Name string `arg:"" help:"Name of the GPU."`
}

func (c *gpuShowCmd) Run(ctx context.Context, out output) error {
	return ask(&c.server, out, func(k *api.Client) (api.GPUReport, error) { return k.Show(ctx, c.Name) }, func(b *strings.Builder, g *api.GPUReport) {
		gpuTable(b, []api.GPU{g.GPU}, true)
		gpuText(b, g)
	})
}

type gpuAddCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"Options of the GPU: name=a socket=a.sock vram=256MiB. The keys are those of gpus in the configuration file."`
}

func (c *gpuAddCmd) Run(ctx context.Context, out output) error {
	// Relative paths are the command's: the server may run in another folder.
	options := strings.Split(strings.Join(c.What, ","), ",")
	for i, part := range options {
		if key, path := config.Pair(part); path != "" && (key == "socket" || key == "rom") {
			abs, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			options[i] = key + "=" + abs
		}
	}
	a := api.AddRequest{GPU: strings.Join(options, ",")}
	return ask(&c.server, out, func(k *api.Client) (api.GPU, error) { return k.Add(ctx, a) }, func(b *strings.Builder, g *api.GPU) {
		fmt.Fprintf(b, "GPU %s: %v, %d channels; QEMU attaches with\n\n%s", g.Name, config.Size(g.VRAM), g.Channels, shellLines(qemuArgs(g.Socket)))
	})
}

// unchanged is what is written for a change that changed nothing.
const unchanged = "unchanged: the options have these values already"

type gpuSetCmd struct {
	server
	Name string   `arg:"" help:"Name of the GPU."`
	What []string `arg:"" name:"key=value" help:"Options to change: shadow.sync=lazy weight=200 cap=50. umbra gpu show lists the live ones."`
}

func (c *gpuSetCmd) Run(ctx context.Context, out output) error {
	r := api.SetRequest{Options: strings.Join(c.What, ",")}
	return ask(&c.server, out, func(k *api.Client) (api.GPU, error) { return k.Set(ctx, c.Name, r) }, func(b *strings.Builder, g *api.GPU) {
		fmt.Fprintf(b, "GPU %s: %s\n", g.Name, cmp.Or(api.ChangesText(g.Changes), unchanged))
	})
}

type gpuInjectCmd struct {
	server
	Name  string        `arg:"" help:"Name of the GPU."`
	Kind  string        `arg:"" enum:"lost-interrupt,late-interrupt,hung-engine,translation-fault,off-bus,none" help:"lost-interrupt: interrupts do not come. late-interrupt: they come late. hung-engine: work does not begin. translation-fault: work ends with an MMU fault. off-bus: reads give ones, writes do nothing. none: end the planted fault."`
	For   time.Duration `placeholder:"TIME" default:"0s" help:"When the fault ends; after 10s without a time and a count."`
	Count uint64        `placeholder:"N" default:"0" help:"How often it happens, but for hung-engine: interrupts, submissions or accesses."`
	Delay time.Duration `placeholder:"TIME" default:"0s" help:"How late interrupts come, by default 100ms."`
}

func (c *gpuInjectCmd) Run(ctx context.Context, out output) error {
	r := api.InjectRequest{Kind: c.Kind, For: c.For, Count: c.Count, Delay: c.Delay}
	return ask(&c.server, out, func(k *api.Client) (api.Injected, error) { return k.Inject(ctx, c.Name, r) }, func(b *strings.Builder, i *api.Injected) {
		switch {
		case i.Kind == "none":
			fmt.Fprintf(b, "GPU %s: no fault is planted.\n", i.GPU)
		case i.Count > 0:
			fmt.Fprintf(b, "GPU %s: %s, %s, for %v at most.\n", i.GPU, i.Kind, plural(i.Count, "time", "times"), i.For)
		default:
			fmt.Fprintf(b, "GPU %s: %s for %v.\n", i.GPU, i.Kind, i.For)
		}
	})
}

type gpuRemoveCmd struct {
	server
	Name  string `arg:"" help:"Name of the GPU."`
	Force bool   `help:"Disconnect a client that is attached."`
}

func (c *gpuRemoveCmd) Run(ctx context.Context, out output) error {
	return ask(&c.server, out, func(k *api.Client) (api.GPUReport, error) { return k.Remove(ctx, c.Name, c.Force) }, func(b *strings.Builder, r *api.GPUReport) {
		fmt.Fprintf(b, "GPU %s is removed; it had %s.\n", r.Name, plural(r.Clients, "client", "clients"))
		gpuText(b, r)
	})
}

type reloadCmd struct{ server }

// Help is the text below the usage.
func (reloadCmd) Help() string {
	return "The server reads the file again, as at SIGHUP. It adds and removes GPUs, and changes live options of GPUs and of the scheduler. " +
		"What commands changed stays, unless the file changed it too. The exit code is 1 if a change was refused; the next reload tries it again."
}

func (c *reloadCmd) Run(ctx context.Context, out output) error {
	refusals := 0
	err := ask(&c.server, out, func(k *api.Client) (r api.Reload, err error) {
		r, err = k.Reload(ctx)
		for _, s := range r.Steps {
			if s.Refused != "" {
				refusals++
			}
		}
		return r, err
	}, func(b *strings.Builder, r *api.Reload) {
		for _, s := range r.Steps {
			fmt.Fprintf(b, "%s: %s\n", s.What, cmp.Or(s.Done, "refused: "+s.Refused))
		}
		if len(r.Steps) == 0 {
			b.WriteString("unchanged: the file says what it said when it was read last\n")
		}
	})
	if err == nil && refusals > 0 {
		err = fmt.Errorf("%s of the configuration refused", plural(uint64(refusals), "change", "changes"))
	}
	return err
}
