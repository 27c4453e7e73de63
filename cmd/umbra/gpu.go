package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// server is the running server that a subcommand talks to.
type server struct {
	Control string `env:"UMBRA_CONTROL" placeholder:"PATH" help:"Control socket of the server, as given to umbra serve --control."`
	JSON    bool   `name:"json" help:"Write JSON, as docs/control-api.md describes it."`
}

func (s *server) client() (*api.Client, error) {
	if s.Control == "" {
		return nil, &config.Error{Where: "--control", Reason: "missing; give the path that umbra serve was started with, here or in the variable UMBRA_CONTROL"}
	}
	return api.NewClient(s.Control), nil
}

// ask sends a request to the server.
func ask[T any](s *server, request func(*api.Client) (T, error)) (answer T, err error) {
	k, err := s.client()
	if err != nil {
		return answer, err
	}
	return request(k)
}

// write writes v as JSON, or the text.
func (s *server) write(out output, v any, text string) error {
	if s.JSON {
		return json.NewEncoder(out.stdout).Encode(v)
	}
	_, err := fmt.Fprint(out.stdout, text)
	return err
}

type statusCmd struct {
	server
}

func (c *statusCmd) Run(ctx context.Context, out output) error {
	s, err := ask(&c.server, func(k *api.Client) (api.Status, error) { return k.Status(ctx) })
	if err != nil {
		return err
	}
	return c.write(out, s, statusText(&s))
}

type gpuCmd struct {
	List   gpuListCmd   `cmd:"" help:"List the GPUs of a running server."`
	Show   gpuShowCmd   `cmd:"" help:"Show everything about one GPU: its options and its counts."`
	Add    gpuAddCmd    `cmd:"" help:"Add a virtual GPU to a running server."`
	Set    gpuSetCmd    `cmd:"" help:"Change options of a virtual GPU while its guest runs."`
	Remove gpuRemoveCmd `cmd:"" help:"Remove a virtual GPU and give its share of the card back."`
}

type gpuListCmd struct {
	server
}

func (c *gpuListCmd) Run(ctx context.Context, out output) error {
	s, err := ask(&c.server, func(k *api.Client) (api.Status, error) { return k.Status(ctx) })
	if err != nil {
		return err
	}
	var b strings.Builder
	gpuTable(&b, s.GPUs, true)
	return c.write(out, s.GPUs, b.String())
}

type gpuShowCmd struct {
	server
	Name string `arg:"" help:"Name of the GPU."`
}

func (c *gpuShowCmd) Run(ctx context.Context, out output) error {
	g, err := ask(&c.server, func(k *api.Client) (api.GPUReport, error) { return k.Show(ctx, c.Name) })
	if err != nil {
		return err
	}
	var b strings.Builder
	gpuTable(&b, []api.GPU{g.GPU}, true)
	gpuText(&b, &g)
	return c.write(out, g, b.String())
}

type gpuAddCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"Options of the GPU: name=a socket=a.sock vram=256MiB. The keys are those of gpus in the configuration file."`
}

func (c *gpuAddCmd) Run(ctx context.Context, out output) error {
	// Relative paths are the command's: the server may run in another folder.
	parts := strings.Split(strings.Join(c.What, ","), ",")
	for i, part := range parts {
		key, path := config.Pair(part)
		if path == "" || key != "socket" && key != "rom" {
			continue
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		parts[i] = key + "=" + abs
	}
	g, err := ask(&c.server, func(k *api.Client) (api.GPU, error) {
		return k.Add(ctx, api.AddRequest{GPU: strings.Join(parts, ",")})
	})
	if err != nil {
		return err
	}
	return c.write(out, g, fmt.Sprintf("GPU %s: %v, %d channels; QEMU attaches with\n\n%s", g.Name, config.Size(g.VRAM), g.Channels, shellLines(qemuArgs(g.Socket))))
}

type gpuSetCmd struct {
	server
	Name string   `arg:"" help:"Name of the GPU."`
	What []string `arg:"" name:"key=value" help:"Options to change: shadow.sync=lazy weight=200 cap=50. umbra gpu show lists the live ones."`
}

func (c *gpuSetCmd) Run(ctx context.Context, out output) error {
	g, err := ask(&c.server, func(k *api.Client) (api.GPU, error) {
		return k.Set(ctx, c.Name, api.SetRequest{Options: strings.Join(c.What, ",")})
	})
	if err != nil {
		return err
	}
	text := api.ChangesText(g.Changes)
	if text == "" {
		text = "unchanged: the options have these values already"
	}
	return c.write(out, g, fmt.Sprintf("GPU %s: %s\n", g.Name, text))
}

type gpuRemoveCmd struct {
	server
	Name  string `arg:"" help:"Name of the GPU."`
	Force bool   `help:"Disconnect a client that is attached."`
}

func (c *gpuRemoveCmd) Run(ctx context.Context, out output) error {
	r, err := ask(&c.server, func(k *api.Client) (api.GPUReport, error) { return k.Remove(ctx, c.Name, c.Force) })
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %s is removed; it had %s.\n", r.Name, plural(r.Clients, "client", "clients"))
	gpuText(&b, &r)
	return c.write(out, r, b.String())
}
