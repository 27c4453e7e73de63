package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

type regsCmd struct {
	Control string `env:"UMBRA_CONTROL" placeholder:"PATH" help:"Add what the guests of the server with this control socket did."`
	GPU     string `name:"gpu" placeholder:"NAME" help:"Count this GPU's guest only."`
	Block   string `placeholder:"NAME" help:"Show this block only."`
	Touched bool   `help:"Show what guests touched only, most first."`
	JSON    bool   `name:"json" help:"Write JSON for machines."`
}

func (c *regsCmd) Run(ctx context.Context, out output) error {
	t, err := c.table(ctx)
	if err != nil {
		return err
	}
	if c.Block != "" {
		if err := keepBlock(&t, c.Block); err != nil {
			return err
		}
	}
	if c.Touched {
		t.Rows = slices.DeleteFunc(t.Rows, func(r serve.PolicyRow) bool { return r.Reads+r.Writes == 0 })
		slices.SortStableFunc(t.Rows, func(a, b serve.PolicyRow) int { return cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes) })
	}
	if c.JSON {
		return json.NewEncoder(out.stdout).Encode(t)
	}
	_, err = io.WriteString(out.stdout, policyText(&t, c.Control != ""))
	return err
}

func (c *regsCmd) table(ctx context.Context) (serve.PolicyTable, error) {
	if c.Control != "" {
		return api.NewClient(c.Control).Registers(ctx, c.GPU)
	}
	for _, f := range []struct {
		flag, value string
		given       bool
	}{{"--gpu", c.GPU, c.GPU != ""}, {"--touched", "", c.Touched}} {
		if f.given {
			return serve.PolicyTable{}, &config.Error{Where: f.flag, Value: f.value, Reason: "counts are a running server's; give its control socket with --control"}
		}
	}
	return serve.NewPolicyTable()
}

func keepBlock(t *serve.PolicyTable, block string) error {
	var names []string
	for _, r := range t.Rows {
		if !slices.Contains(names, r.Block) {
			names = append(names, r.Block)
		}
	}
	if !slices.Contains(names, block) {
		return &config.Error{Where: "--block", Value: block, Reason: "no such block; " + config.Known(block, names)}
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r serve.PolicyRow) bool { return r.Block != block })
	t.Unlisted = nil
	return nil
}

// policyText is the table for a person.
func policyText(t *serve.PolicyTable, counted bool) string {
	var b strings.Builder
	head := "block\tregister\toffset\tinstances\taccess\tpolicy\tstub\teffect"
	if counted {
		fmt.Fprintf(&b, "Counts of %s\n", cmp.Or(strings.Join(t.GPUs, ", "), "no GPU: there is none yet"))
		head = "block\tregister\toffset\tinstances\taccess\tpolicy\treads\twrites\ttime\tstub\teffect"
	}
	byPolicy := make(map[string]int)
	stubs := 0
	w := newTable(&b, "", head)
	for i := range t.Rows {
		r := &t.Rows[i]
		byPolicy[r.Policy]++
		stub := "-"
		if r.Stub {
			stub = "stub"
			stubs++
		}
		counts := ""
		if counted {
			counts = fmt.Sprintf("%d\t%d\t%v\t", r.Reads, r.Writes, short(r.Time))
		}
		w.row("%s\t%s\t%06x\t%d\t%s\t%s\t%s%s\t%s", r.Block, r.Register, r.Offset, r.Instances, r.Access, r.Policy, counts, stub, cmp.Or(r.Effect, "-"))
	}
	w.flush()
	fmt.Fprintf(&b, "\n%d rows: %d virtual, %d translate, %d refuse; %d of them stubs. What no row declares is storage of the guest's own, counted.\n",
		len(t.Rows), byPolicy["virtual"], byPolicy["translate"], byPolicy["refuse"], stubs)
	w = newTable(&b, "Touched and not declared", "near\toffset\treads\twrites")
	for _, h := range t.Unlisted {
		w.row("%s\t%06x\t%d\t%d", h.Near, h.Offset, h.Reads, h.Writes)
	}
	w.flush()
	return b.String()
}
