package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

type regsCmd struct {
	Control string `env:"UMBRA_CONTROL" placeholder:"PATH" help:"Control socket of a running server, to add the counts of its guests. By default $XDG_RUNTIME_DIR/umbra.sock or /run/umbra/control.sock, where one is."`
	GPU     string `name:"gpu" placeholder:"NAME" help:"Count only the guest of this GPU; needs --control."`
	Chip    string `placeholder:"NAME" help:"Show only registers of this chip: gf100 or gh100."`
	At      string `placeholder:"OFFSET" help:"Show only the register that covers this offset, in hexadecimal: 2274."`
	Touched bool   `help:"Show only registers that guests accessed, most accessed first; needs --control."`
	JSON    bool   `name:"json" help:"Write JSON, as docs/control-api.md describes it."`
}

func (c *regsCmd) Run(ctx context.Context, out output) error {
	if c.Control == "" {
		c.Control = api.FindControl()
	}
	t, err := c.table(ctx)
	if err != nil {
		return err
	}
	if c.Chip != "" {
		if !slices.Contains(serve.Chips(), c.Chip) {
			return &config.Error{Where: "--chip", Value: c.Chip, Reason: "no such chip; " + config.Known(c.Chip, serve.Chips())}
		}
		t.Rows = slices.DeleteFunc(t.Rows, func(r api.Register) bool { return r.Chip != c.Chip })
	}
	if c.At != "" {
		if err := keepAt(&t, c.At); err != nil {
			return err
		}
	}
	if c.Touched {
		t.Rows = slices.DeleteFunc(t.Rows, func(r api.Register) bool { return r.Reads+r.Writes == 0 })
		slices.SortStableFunc(t.Rows, func(a, b api.Register) int { return cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes) })
	}
	if c.JSON {
		return json.NewEncoder(out.stdout).Encode(t)
	}
	_, err = io.WriteString(out.stdout, registersText(&t, c.Control != ""))
	return err
}

func (c *regsCmd) table(ctx context.Context) (api.RegisterTable, error) {
	if c.Control != "" {
		return api.NewClient(c.Control).Registers(ctx, c.GPU)
	}
	const reason = "only a running server has counts; give its control socket with --control"
	switch {
	case c.GPU != "":
		return api.RegisterTable{}, &config.Error{Where: "--gpu", Value: c.GPU, Reason: reason}
	case c.Touched:
		return api.RegisterTable{}, &config.Error{Where: "--touched", Reason: reason}
	}
	return serve.Registers()
}

// keepAt keeps the row that declares the register at an offset.
func keepAt(t *api.RegisterTable, at string) error {
	off, err := strconv.ParseUint(strings.TrimPrefix(at, "0x"), 16, 32)
	if err != nil {
		return &config.Error{Where: "--at", Value: at, Reason: "not an offset; write it in hexadecimal: 2274"}
	}
	var rows []api.Register
	var nearest []string
	for _, chip := range serve.Chips() {
		full, err := serve.RegisterName(chip, uint32(off))
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(full, "[")
		name, _, away := strings.Cut(name, "+")
		for _, r := range t.Rows {
			if r.Chip == chip && r.Register == name && (!away || r.Size != 0) {
				rows = append(rows, r)
			}
		}
		if slices.ContainsFunc(t.Rows, func(r api.Register) bool { return r.Chip == chip }) {
			nearest = append(nearest, full)
		}
	}
	if len(rows) == 0 {
		return &config.Error{Where: "--at", Value: at, Reason: "no register is declared there; by the nearest one it is " + strings.Join(nearest, ", or ")}
	}
	t.Rows, t.Undeclared = rows, nil
	return nil
}

// registerLegend explains the columns of the register table.
const registerLegend = `- x N, or instances: how many registers the row has, one after the other.
- access RW: read and written. RO: writes are ignored. WO: reads as zero. W1C: writing ones clears the bits. W1S: writing ones
  sets them. RC: reading clears them. RO+RW and the like: the register has fields of both kinds. window: shows other memory.
- policy virtual: the guest reads and writes its own state.
- policy translate: the value is checked and translated before it reaches the card.
- policy refuse: the guest may read it; its writes are counted and have no effect.
- stub: the register only stores, where hardware would act.
- Offsets that are not listed are storage of the guest's own. They never reach the card, and accesses are counted.
`

// registersText writes a line for each register. What has no bound comes last in a line, so that it
// makes no other line longer.
func registersText(t *api.RegisterTable, counted bool) string {
	var b strings.Builder
	head := "offset\taccess\tpolicy"
	if counted {
		fmt.Fprintf(&b, "Counts of %s\n", cmp.Or(strings.Join(t.GPUs, ", "), "no GPU: there are none"))
		head += "\treads\twrites\ttime"
	}
	several := slices.ContainsFunc(t.Rows, func(r api.Register) bool { return r.Chip != t.Rows[0].Chip })
	if several {
		head = "chip\t" + head
	}
	byPolicy := make(map[string]int)
	stubs := 0
	w := newTable(&b, "", head+"\tregister")
	for i := range t.Rows {
		r := &t.Rows[i]
		byPolicy[r.Policy]++
		chip, counts, name := "", "", r.Register
		if several {
			chip = r.Chip + "\t"
		}
		if r.Instances > 1 {
			name += fmt.Sprintf(" x %d", r.Instances)
		}
		if r.Stub {
			name += ", stub"
			stubs++
		}
		if r.Effect != "" {
			name += ": " + r.Effect
		}
		if counted {
			counts = fmt.Sprintf("\t%d\t%d\t%v", r.Reads, r.Writes, short(r.Time))
		}
		w.row("%s%06x\t%s\t%s%s\t%s", chip, r.Offset, r.Access, r.Policy, counts, name)
	}
	w.flush()
	fmt.Fprintf(&b, "\n%s: %d virtual, %d translate, %d refuse; %d of them stubs.\n%s",
		plural(uint64(len(t.Rows)), "row", "rows"), byPolicy["virtual"], byPolicy["translate"], byPolicy["refuse"], stubs, registerLegend)
	listTable(&b, "Accessed and not declared", t.Undeclared)
	return b.String()
}
