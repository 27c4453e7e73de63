package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

type vfioUserCmd struct {
	Probe probeCmd `cmd:"" help:"Say what a server's device is: version, regions, interrupts, configuration space."`
	Check checkCmd `cmd:"" help:"Run the conformance suite against a server that nobody uses."`
}

// noSocket says that nobody said which server.
func noSocket(command string) error {
	return &config.Error{Where: "SOCKET", Reason: "missing; say where the server listens, for example umbra vfio-user " + command + " card.sock, after umbra serve --socket card.sock"}
}

type probeCmd struct {
	Socket  string        `arg:"" optional:"" help:"The server's socket."`
	Timeout time.Duration `placeholder:"TIME" default:"5s" help:"How long it may take in all."`
	JSON    bool          `name:"json" help:"Write one JSON document."`
}

func (c *probeCmd) Run(ctx context.Context, out output) error {
	if c.Socket == "" {
		return noSocket("probe")
	}
	if c.Timeout <= 0 {
		return &config.Error{Where: "--timeout", Value: c.Timeout.String(), Reason: "must be above 0"}
	}
	d, err := probe.Probe(ctx, c.Socket, c.Timeout)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Socket, err)
	}
	if c.JSON {
		e := json.NewEncoder(out.stdout)
		e.SetIndent("", "  ")
		return e.Encode(d)
	}
	_, err = fmt.Fprint(out.stdout, d.Text())
	return err
}

type checkCmd struct {
	Socket  string        `arg:"" optional:"" help:"The server's socket."`
	Family  []string      `placeholder:"NAME" help:"Run only these families of cases."`
	List    bool          `help:"List the cases and run none."`
	Verbose bool          `short:"v" help:"Write every case, not only those that failed and the choices."`
	Timeout time.Duration `placeholder:"TIME" default:"5s" help:"How long one answer may take."`
	JSON    bool          `name:"json" help:"Write a line of JSON for each case."`
}

func (c *checkCmd) Run(ctx context.Context, out output) error {
	for _, f := range c.Family {
		if !slices.Contains(conformance.Families(), f) {
			return &config.Error{Where: "--family", Value: f, Reason: "the families are " + strings.Join(conformance.Families(), ", ")}
		}
	}
	if c.List {
		return c.list(out)
	}
	if c.Socket == "" {
		return noSocket("check")
	}
	if c.Timeout <= 0 {
		return &config.Error{Where: "--timeout", Value: c.Timeout.String(), Reason: "must be above 0"}
	}
	lines := json.NewEncoder(out.stdout)
	counts := map[conformance.Outcome]int{}
	choices := 0
	err := conformance.Run(ctx, conformance.Options{Dial: conformance.DialPath(c.Socket), Timeout: c.Timeout, Families: c.Family}, func(r conformance.Result) {
		counts[r.Outcome]++
		choice := r.Mark == conformance.Choice && r.Outcome == conformance.Passed
		if choice {
			choices++
		}
		switch {
		case c.JSON:
			_ = lines.Encode(r) // whoever reads has gone: the exit code still tells
		case c.Verbose, choice, r.Outcome == conformance.Failed:
			mark := string(r.Outcome)
			if choice {
				mark = "choice"
			}
			fmt.Fprintf(out.stdout, "%-6s %s: %s: %s\n", mark, r.Family, r.Name, r.Found)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Socket, err)
	}
	if !c.JSON {
		fmt.Fprintf(out.stdout, "%d passed (%d of them a library's choice), %d failed, %d not applicable\n",
			counts[conformance.Passed], choices, counts[conformance.Failed], counts[conformance.NotApplicable])
	}
	if n := counts[conformance.Failed]; n > 0 {
		return fmt.Errorf("%s: %d cases failed", c.Socket, n)
	}
	return nil
}

func (c *checkCmd) list(out output) error {
	n := 0
	for _, k := range conformance.Cases() {
		if len(c.Family) > 0 && !slices.Contains(c.Family, k.Family) {
			continue
		}
		n++
		if c.JSON {
			if err := json.NewEncoder(out.stdout).Encode(k); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out.stdout, "%s: %s (%s): %s\n", k.Family, k.Name, k.Mark, k.Does)
	}
	if c.JSON {
		return nil
	}
	_, err := fmt.Fprintf(out.stdout, "%d cases\n", n)
	return err
}
