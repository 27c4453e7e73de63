package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/umbra-gpu/umbra/cmd/bench/traps"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

type benchTrapsCmd struct {
	Transport string `placeholder:"NAME" default:"native" enum:"native,libvfio-user,both" help:"native, libvfio-user, or both by turns in one run, with ratios (default: ${default})."`
	QEMU      *bool  `name:"qemu" negatable:"" help:"Measure through QEMU too: boots a guest twice. Fetches QEMU and a kernel (without root) if they are not there. When nothing is said: if they are there."`
	Repeat    int    `placeholder:"N" default:"9" help:"Rounds; medians are shown, with the least and the greatest (default: ${default})."`
	Count     int    `placeholder:"N" default:"4000" help:"Accesses of each kind a round (default: ${default})."`
	JSON      bool   `name:"json" help:"Write one JSON document."`
}

func (c *benchTrapsCmd) Run(ctx context.Context, out output) error {
	if c.Repeat < 1 || c.Count < 1 {
		return &config.Error{Where: "--repeat and --count", Value: fmt.Sprintf("%d, %d", c.Repeat, c.Count), Reason: "must be 1 or more"}
	}
	o := traps.Options{Transports: []string{c.Transport}, Rounds: c.Repeat, Count: c.Count, Progress: out.stderr}
	if c.Transport == "both" {
		o.Transports = []string{serve.TransportNative, serve.TransportLibrary}
	}
	if c.QEMU == nil || *c.QEMU {
		if err := checkGiven(ctx, nil); err != nil {
			return err
		}
	}
	why := ""
	switch {
	case c.QEMU == nil:
		if err := lab.Present(ctx, ""); err != nil {
			why = err.Error()
			if errors.Is(err, fetch.ErrNotFetched) {
				why += "; --qemu fetches it, and measures"
			}
		}
		o.Guest = why == ""
	case *c.QEMU:
		o.Guest = true
	default:
		why = "--no-qemu"
	}
	r, err := traps.Measure(ctx, o)
	if err != nil {
		return err
	}
	r.NoGuest = why
	if c.JSON {
		e := json.NewEncoder(out.stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	_, err = io.WriteString(out.stdout, r.Text(o.Transports))
	return err
}
