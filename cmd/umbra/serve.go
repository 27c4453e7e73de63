package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/vfiouser"
)

type serveCmd struct {
	config.Config `embed:""`

	File string `name:"config" placeholder:"FILE" help:"Read options from a YAML file; flags override it."`
	FD   int    `name:"fd" placeholder:"N" default:"-1" help:"Use this inherited descriptor in place of --socket: a listening socket, or a client's connection."`
	JSON bool   `name:"json" help:"Write JSON lines for machines: one when serving, one report at the end."`
}

// noFD is FD's value when nobody gave one.
const noFD = -1

func (c *serveCmd) Run(ctx context.Context, parsed *kong.Context, out output) error {
	opts, err := c.options(parsed)
	if err != nil {
		return err
	}
	cardConfig, err := cardConfig(&opts)
	if err != nil {
		return err
	}
	// The socket first: a path that is taken must not cost the making of a card.
	at, err := c.listen(&opts)
	if err != nil {
		return err
	}
	defer at.close()
	card, err := soft.New(cardConfig)
	if err != nil {
		return err
	}
	s, err := newServed(card, &opts, out)
	if err != nil {
		return errors.Join(err, card.Close())
	}
	if err := s.announce(at, &opts.Config, c.JSON); err != nil {
		return errors.Join(err, card.Close())
	}
	stop := s.reportOnSignal(c.JSON)
	err = at.serve(ctx, s.server)
	stop()
	if errors.Is(err, context.Canceled) {
		err = nil // a signal is how it is meant to end
	}
	return errors.Join(err, s.server.Close(), s.report(c.JSON), card.Close())
}

// options joins defaults, file and flags.
func (c *serveCmd) options(parsed *kong.Context) (config.Layer, error) {
	layers := []config.Layer{config.Defaults()}
	if c.File != "" {
		file, err := config.File(c.File)
		if err != nil {
			return config.Layer{}, err
		}
		layers = append(layers, file)
	}
	var set []string
	for _, f := range parsed.Flags() {
		if f.Set {
			set = append(set, f.Name)
		}
	}
	l, err := config.Join(append(layers, config.Flags(c.Config, set))...)
	if err != nil {
		return l, err
	}
	switch {
	case c.FD == noFD && l.Config.Socket == "":
		return l, &config.Error{Where: l.Where("socket"), Reason: "missing; say where QEMU shall attach, for example --socket umbra.sock"}
	case c.FD != noFD && l.Config.Socket != "":
		return l, &config.Error{Where: "--fd", Value: fmt.Sprint(c.FD), Reason: l.Where("socket") + " is given too; one of them is enough"}
	}
	return l, nil
}

// cardConfig is the card that the options describe.
func cardConfig(l *config.Layer) (soft.Config, error) {
	o := &l.Config.Card
	temperature := o.Temperature
	out := soft.Config{
		VRAM: uint64(o.VRAM),
		TPCs: o.TPCs,
		PCI:  gf100.ConfigOptions{BAR1: uint64(o.BAR1), BAR3: uint64(o.BAR3), NoMSI: !o.MSI},

		Temperature: func() int { return temperature },
	}
	if _, err := gf100.NewFace(gf100.FaceConfig{VRAM: out.VRAM, TPCs: out.TPCs}); err != nil {
		return out, &config.Error{Where: l.Where("card.tpcs"), Value: o.TPCs.String(), Reason: err.Error()}
	}
	if o.ROM == "" {
		return out, nil
	}
	data, err := readROM(o.ROM)
	if err != nil {
		return out, &config.Error{Where: l.Where("card.rom"), Value: o.ROM, Reason: err.Error()}
	}
	if _, err := firmware.Load(data, gf100.VendorID, gf100.DeviceID); err != nil {
		return out, &config.Error{Where: l.Where("card.rom"), Value: o.ROM, Reason: err.Error()}
	}
	out.ROM = data
	return out, nil
}

// served is a card and the server in front of it.
type served struct {
	card   *soft.Card
	device *watched
	server *vfiouser.Server
	began  time.Time
	out    output
}

func newServed(card *soft.Card, l *config.Layer, out output) (*served, error) {
	log := slog.New(slog.NewTextHandler(out.stderr, nil))
	o := &l.Config.Server
	w := &watched{device: serve.NewPassThrough(card), log: log}
	server, err := vfiouser.NewServer(w, vfiouser.Options{
		Spin: o.Spin, NoWriteMulti: !o.WriteMulti, MaxDMARegions: o.MaxDMARegions, MaxDMASize: uint64(o.MaxDMASize), Log: log,
	})
	return &served{card: card, device: w, server: server, began: time.Now(), out: out}, err
}

// announcement is the JSON line that says what is served.
type announcement struct {
	Event   string         `json:"event"` // "serving"
	Socket  string         `json:"socket,omitempty"`
	Options map[string]any `json:"options"`
	QEMU    []string       `json:"qemu,omitempty"` // arguments that attach it
	PID     int            `json:"pid"`
}

func (s *served) announce(at *endpoint, c *config.Config, asJSON bool) error {
	a := announcement{Event: "serving", Socket: at.path, Options: c.Values(), PID: os.Getpid()}
	if at.path != "" {
		a.QEMU = qemuArgs(at.path)
	}
	if asJSON {
		return json.NewEncoder(s.out.stdout).Encode(a)
	}
	interrupts := "MSI"
	if !c.Card.MSI {
		interrupts = "INTx"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GF100 in software (%04x:%04x), %v of VRAM, %s\n", gf100.VendorID, gf100.DeviceID, c.Card.VRAM, interrupts)
	if at.path == "" {
		b.WriteString("serving the client on the inherited descriptor\n")
	} else {
		fmt.Fprintf(&b, "serving at %s\n\nQEMU (10.1 or newer) attaches with these arguments, beside those for its disk or kernel:\n\n%s", at.path, shellLines(a.QEMU))
	}
	b.WriteString("\nInterrupt it (ctrl-C) to stop.\n")
	_, err := fmt.Fprint(s.out.stdout, b.String())
	return err
}
