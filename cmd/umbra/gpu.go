package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// server is the running server that a subcommand talks to.
type server struct {
	Control string `env:"UMBRA_CONTROL" placeholder:"PATH" help:"The server's control socket."`
	JSON    bool   `name:"json" help:"Write JSON for machines."`
}

func (s *server) client() (*api.Client, error) {
	if s.Control == "" {
		return nil, &config.Error{Where: "--control", Reason: "missing; say which server: the path that umbra serve was given with --control, here with --control too or in the variable UMBRA_CONTROL"}
	}
	return api.NewClient(s.Control), nil
}

// write writes v as JSON, or the text.
func (s *server) write(out output, v any, text string) error {
	if s.JSON {
		return json.NewEncoder(out.stdout).Encode(v)
	}
	_, err := fmt.Fprint(out.stdout, text)
	return err
}

type gpuCmd struct {
	List   gpuListCmd   `cmd:"" help:"List the GPUs."`
	Show   gpuShowCmd   `cmd:"" help:"Say everything about one GPU: its options, and who said them."`
	Add    gpuAddCmd    `cmd:"" help:"Add a virtual GPU."`
	Set    gpuSetCmd    `cmd:"" help:"Change options of a virtual GPU while its guest runs."`
	Remove gpuRemoveCmd `cmd:"" help:"Remove a virtual GPU and give its share of the card back."`
}

type gpuListCmd struct {
	server
}

func (c *gpuListCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	s, err := client.Status(ctx)
	if err != nil {
		return err
	}
	return c.write(out, s.GPUs, gpuLines(s.GPUs))
}

const gpuColumns = "name\tVRAM\tchannels\tclient\ttraps\tinterrupts\tfaults\trules broken\tsocket"

// faultCounts are the counts of a GPU that its column of faults sums up.
var faultCounts = []string{"mmu_faults", "pbdma_errors", "engine_errors", "window_faults"}

// gpuLines lists GPUs for a person.
func gpuLines(gpus []api.GPU) string {
	if len(gpus) == 0 {
		return "There are no GPUs; umbra gpu add makes one.\n"
	}
	var b strings.Builder
	t := newTable(&b, "", gpuColumns)
	for i := range gpus {
		g := &gpus[i]
		client := "-"
		if g.Attached {
			client = "attached"
		}
		channels := "all"
		if g.Channels > 0 {
			channels = fmt.Sprint(g.Channels)
		}
		faults := uint64(0)
		for _, name := range faultCounts {
			faults += g.Count(name)
		}
		t.row("%s\t%v\t%s\t%s\t%d\t%d\t%d\t%d\t%s", g.Name, config.Size(g.VRAM), channels, client, g.Traps, g.Interrupts, faults, g.Broken(), g.Socket)
	}
	t.flush()
	for i := range gpus {
		if g := &gpus[i]; g.OutOfService != "" {
			fmt.Fprintf(&b, "%s takes no client: %s; each that comes has it tried again\n", g.Name, g.OutOfService)
		}
		if g := &gpus[i]; g.Quarantine != "" {
			fmt.Fprintf(&b, "%s is quarantined: %s; a reset of the GPU ends it\n", g.Name, g.Quarantine)
		}
	}
	return b.String()
}

// timeLines says who had how much of the card's time.
func timeLines(gpus []api.GPU, policy string) string {
	var b strings.Builder
	t := newTable(&b, "Card time, by "+policy, "name\tweight\tcap\tpriority\tbusy\twaited\trequests\theld\trunaways")
	for i := range gpus {
		g := &gpus[i]
		if c := g.CardTime; c != nil {
			t.row("%s\t%v\t%v\t%v\t%v\t%v\t%d\t%d\t%d", g.Name, g.Options["weight"], percent(g.Options["cap"]), g.Options["priority"],
				short(c.Busy), short(c.Wait), c.Requests, c.Held, g.Count("runaways"))
		}
	}
	t.flush()
	return b.String()
}

// percent writes a cap, of which none is zero; through JSON it is some number.
func percent(n any) string {
	if text := fmt.Sprint(n); text != "0" {
		return text + "%"
	}
	return "-"
}

type gpuAddCmd struct {
	server
	What []string `arg:"" name:"key=value" help:"What to add: name=a socket=a.sock vram=256MiB. The keys are those of the file."`
}

func (c *gpuAddCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	// Paths are this command's: the server may run in another folder.
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
	g, err := client.Add(ctx, api.AddRequest{GPU: strings.Join(parts, ",")})
	if err != nil {
		return err
	}
	return c.write(out, g, fmt.Sprintf("GPU %s: %v, %d channels; QEMU attaches with\n\n%s", g.Name, config.Size(g.VRAM), g.Channels, shellLines(qemuArgs(g.Socket))))
}

type gpuSetCmd struct {
	server
	Name string   `arg:"" help:"Its name."`
	What []string `arg:"" name:"key=value" help:"What to change: shadow.sync=flush weight=200 cap=50."`
}

func (c *gpuSetCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	g, err := client.Set(ctx, c.Name, api.SetRequest{Options: strings.Join(c.What, ",")})
	if err != nil {
		return err
	}
	return c.write(out, g, setText(&g, strings.Join(c.What, ",")))
}

// setText says what became of a text of keys and values: which options are others now, and
// which were so already.
func setText(g *api.GPU, text string) string {
	var parts []string
	if len(g.Was) > 0 {
		parts = append(parts, changesText(g.Options, g.Was))
	}
	same := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") { // one without a sign is of the value before
		key, _ := config.Pair(part)
		if now, ok := g.Options[key]; ok && g.Was[key] == nil {
			same[key+"="+optionText(now)] = true
		}
	}
	if len(same) > 0 {
		parts = append(parts, "unchanged: "+strings.Join(slices.Sorted(maps.Keys(same)), " "))
	}
	return fmt.Sprintf("GPU %s: %s\n", g.Name, strings.Join(parts, "; "))
}

type gpuRemoveCmd struct {
	server
	Name  string `arg:"" help:"Its name."`
	Force bool   `help:"Cut off the client that is attached."`
}

func (c *gpuRemoveCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	r, err := client.Remove(ctx, c.Name, c.Force)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %s is removed; it had %s.\n", r.Name, plural(r.Clients.Served, "client", "clients"))
	gpuText(&b, &r)
	return c.write(out, r, b.String())
}

// freeLine says what no GPU has of a card that is shared, and what another could have of it.
func freeLine(c *api.Card) string {
	room := fmt.Sprintf("another GPU can have %v beside its page tables", config.Size(c.Room))
	switch {
	case c.Room == 0:
		room = "too little for another GPU"
	case c.Channels == 0:
		room = "no other GPU: all channels are taken"
	}
	return fmt.Sprintf("free: %v, %s; %s\n", config.Size(c.Free), plural(uint64(c.Channels), "channel", "channels"), room)
}

type statusCmd struct {
	server
}

func (c *statusCmd) Run(ctx context.Context, out output) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	s, err := client.Status(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "umbra %s, process %d, %s set-up, for %.1f s\n", s.Version, s.PID, s.Setup, s.Seconds)
	fmt.Fprintf(&b, "card: %s, %v of VRAM", s.Card.Kind, config.Size(s.Card.VRAM))
	f := &s.Card.Faults
	fmt.Fprintf(&b, "; %d bytes moved, %s, %s\n", s.Card.Bytes, plural(s.Card.Interrupts, "interrupt", "interrupts"), plural(f.MMU+f.PBDMA+f.Engine+f.BAR, "fault", "faults"))
	if s.Setup == api.SetupVirtual {
		b.WriteString(freeLine(&s.Card))
		if s.Card.Scheduler == nil {
			fmt.Fprintf(&b, "no scheduler: work is given to the card as it comes; for fair shares %s\n", config.WithScheduler)
		}
	}
	b.WriteString(gpuLines(s.GPUs))
	if c := s.Card.Scheduler; c != nil {
		b.WriteString(timeLines(s.GPUs, c.Policy.String()))
		b.WriteString(ledgerText(s.Card.Ledger))
	}
	return c.write(out, s, b.String())
}
