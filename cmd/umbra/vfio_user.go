package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/probe"
)

type vfioUserCmd struct {
	Probe probeCmd `cmd:"" help:"Describe the device of a vfio-user server: version, regions, interrupts, configuration space."`
	Check checkCmd `cmd:"" help:"Run the conformance suite against a vfio-user server that has no client."`
}

// checkSocket checks the arguments that both commands have.
func checkSocket(path string, timeout time.Duration) error {
	if timeout <= 0 {
		return &config.Error{Where: "--timeout", Value: timeout.String(), Reason: "must be above 0"}
	}
	switch st, err := os.Stat(path); {
	case err != nil:
		return badFile(path, err)
	case st.Mode()&fs.ModeSocket == 0:
		return &config.Error{Where: path, Reason: "not a socket; give the path that the server listens on"}
	}
	return nil
}

type probeCmd struct {
	Socket  string        `arg:"" help:"The server's socket."`
	Timeout time.Duration `placeholder:"TIME" default:"5s" help:"Time for the whole conversation, and a fifth of it for the first answer."`
	JSON    bool          `name:"json" help:"Write JSON, as docs/control-api.md describes it."`
}

func (c *probeCmd) Run(ctx context.Context, out output) error {
	if err := checkSocket(c.Socket, c.Timeout); err != nil {
		return err
	}
	d, err := probe.Probe(ctx, c.Socket, c.Timeout)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Socket, err)
	}
	if c.JSON {
		return writeIndented(out.stdout, d)
	}
	_, err = fmt.Fprint(out.stdout, d.Text())
	return err
}

type checkCmd struct {
	Socket  string        `arg:"" optional:"" help:"The server's socket."`
	Family  []string      `placeholder:"NAME" help:"Run or list only the cases of these families."`
	List    bool          `help:"List the cases and run none."`
	Verbose bool          `short:"v" help:"Write every case. Without it only failures and choices of the server are written."`
	Timeout time.Duration `placeholder:"TIME" default:"5s" help:"Time for one answer."`
	JSON    bool          `name:"json" help:"Write a line of JSON for each case, as docs/control-api.md describes it."`
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
		return &config.Error{Where: "SOCKET", Reason: "missing; give the server's socket, for example umbra vfio-user check card.sock, after umbra serve --socket card.sock"}
	}
	if err := checkSocket(c.Socket, c.Timeout); err != nil {
		return err
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
			_ = lines.Encode(r) // without a reader the exit code is the result
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
		fmt.Fprintf(out.stdout, "%d passed (%d where the specification leaves the choice to the server), %d failed, %d not applicable\n",
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
		} else {
			fmt.Fprintf(out.stdout, "%s: %s (%s): %s\n", k.Family, k.Name, k.Mark, k.Does)
		}
	}
	if !c.JSON {
		fmt.Fprintf(out.stdout, "%d cases\n", n)
	}
	return nil
}
