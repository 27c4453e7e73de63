package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// gpuTable lists GPUs, with channels and sockets or in 80 columns.
func gpuTable(b *strings.Builder, gpus []api.GPU, sockets bool) {
	if len(gpus) == 0 {
		b.WriteString("There are no GPUs; umbra gpu add makes one.\n")
	}
	head := []string{"name", "chip", "VRAM", "client", "traps", "interrupts", "faults", "rules broken"}
	if sockets {
		head = append(slices.Insert(head, 3, "channels"), "socket")
	}
	t := newTable(b, "", strings.Join(head, "\t"))
	for i := range gpus {
		g := &gpus[i]
		client, channels := clientText(g.Attached, g.ClientPID), "all"
		if g.Channels > 0 {
			channels = fmt.Sprint(g.Channels)
		}
		row := fmt.Sprintf("%s\t%d\t%d\t%d\t%d", client, g.Traps, g.Interrupts, g.Faults, g.Broken())
		if sockets {
			row = channels + "\t" + row + "\t" + g.Socket
		}
		t.row("%s\t%s\t%v\t%s", g.Name, g.Chip, config.Size(g.VRAM), row)
	}
	t.flush()
	for i := range gpus {
		if g := &gpus[i]; g.OutOfService != "" {
			fmt.Fprintf(b, "%s refuses clients: %s; each new client causes another attempt\n", g.Name, g.OutOfService)
		}
		if g := &gpus[i]; g.Quarantine != "" {
			fmt.Fprintf(b, "%s is in quarantine: %s; a reset of the GPU ends it\n", g.Name, g.Quarantine)
		}
		if list := gpus[i].Unsupported; len(list) > 0 {
			fmt.Fprintf(b, "%s: its driver asked GSP for what the emulation lacks: %s; its firmware may be of another release\n", gpus[i].Name, unsupportedText(list))
		}
	}
}

// unsupportedText lists what GSP lacks.
func unsupportedText(list []api.Unsupported) string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprintf("%s %#x (%s)", a.Kind, a.Number, plural(a.Count, "time", "times")))
	}
	return strings.Join(out, ", ")
}

// gpuText writes everything about a GPU that is not zero.
func gpuText(b *strings.Builder, g *api.GPUReport) {
	t := newTable(b, "Options; umbra gpu set changes those that are live", "key\tvalue\tlive")
	for _, s := range g.Settings {
		value, live := s.Value, ""
		if s.Inherited != "" {
			value += " (" + s.Inherited + ")"
		}
		if s.Live {
			live = "live"
		}
		t.row("%s\t%s\t%s", s.Key, value, live)
	}
	t.flush()
	listTable(b, "The last channels that the card stopped", g.Stopped)
	countTable(b, "Connections", countsOf(g.Connections))
	listTable(b, "Traps by region", g.Regions)
	listTable(b, "Registers by block", g.Registers.Blocks)
	if m := g.Registers.Missed; m.HoleReads+m.HoleWrites+m.Outside > 0 {
		fmt.Fprintf(b, "  undeclared offsets: %d reads, %d writes; outside: %d\n", m.HoleReads, m.HoleWrites, m.Outside)
	}
	listTable(b, "Copies, uploads and programs that engines started", g.Work)
	countTable(b, "Counts of the guest", g.Counts)
	countTable(b, "Rules that the guest broke", g.RulesBroken)
	inexactText(b, g.Inexact)
	if n := g.CardTime; n != nil {
		a := api.Total(n.Engines)
		fmt.Fprintf(b, "\nCard time: busy for %v with weight %d; %s, %d entries held back, which waited for %v in total\n",
			short(a.Busy), n.Weight, plural(uint64(a.Requests), "request", "requests"), a.Held, short(a.Wait))
	}
	if g.ShadowTime > 0 {
		fmt.Fprintf(b, "\nTime spent on shadowing its page tables: %v\n", short(g.ShadowTime))
	}
	if g.UnmapTime > 0 {
		fmt.Fprintf(b, "\nTime until the card released memory that the client unmapped: %v\n", short(g.UnmapTime))
	}
	countTable(b, "Interrupts that the last client did not get at once", countsOf(g.Delivery))
}

// inexactText lists the mapped windows that showed the guest wrong data.
func inexactText(b *strings.Builder, list []api.InexactWindow) {
	t := newTable(b, "Mapped windows that were not exact", "counter\twindow\tcount")
	var notes []string
	for _, x := range list {
		t.row("%s\t%s\t%s", x.Name, x.Window, plural(x.Count, strings.TrimSuffix(x.Unit, "s"), x.Unit))
		if note := fmt.Sprintf("  %s: %s; %s\n", x.Name, x.Reason, x.Consequence); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	t.flush()
	b.WriteString(strings.Join(notes, ""))
}

// statusText describes a server.
func statusText(b *strings.Builder, s *api.Status) {
	c := &s.Card
	fmt.Fprintf(b, "umbra %s, process %d, %s set-up, for %.1f s\n", s.Version, s.PID, s.Setup, s.Uptime.Seconds())
	fmt.Fprintf(b, "card: %s, %v of VRAM", c.Kind, config.Size(c.VRAM))
	if c.Kind == config.Soft { // others do not count these
		fmt.Fprintf(b, "; %d bytes moved, %s, %s", c.Bytes, plural(c.Interrupts, "interrupt", "interrupts"), plural(c.Faults.Total(), "fault", "faults"))
	}
	b.WriteString("\n")
	if s.Setup == api.SetupVirtual {
		room := fmt.Sprintf("another GPU can have %v beside its page tables", config.Size(c.VRAMRoom))
		switch {
		case c.VRAMRoom == 0:
			room = "too little for another GPU of the default chip"
		case c.ChannelsFree == 0:
			room = "no other GPU: all channels are taken"
		}
		fmt.Fprintf(b, "free: %v, %s; %s\n", config.Size(c.VRAMFree), plural(uint64(c.ChannelsFree), "channel", "channels"), room)
		if c.Policy == "" {
			fmt.Fprintf(b, "no scheduler: work is given to the card as it comes; for fair shares %s\n", config.WithScheduler)
		}
	}
	programText(b, c)
	gpuTable(b, s.GPUs, false)
	words := statusWords
	t := newTable(b, "Card time, by "+c.Policy+"; umbra sched show has more", "name\tweight\tcap\tpriority\tbusy\twaited\trequests\theld\trunaways")
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.CardTime == nil || g.Share == nil {
			continue
		}
		a := api.Total(g.CardTime.Engines)
		t.row("%s\t%d\t%s\t%d\t%v\t%v\t%d\t%d\t%d", g.Name, g.Share.Weight, percent(g.Share.Cap), g.Share.Priority,
			short(a.Busy), short(a.Wait), a.Requests, a.Held, g.Counts["runaways"])
	}
	if t.w != nil {
		words = append(words, ledgerWords...)
	}
	t.flush()
	if len(s.GPUs) > 0 {
		b.WriteString("\n" + legend(words, ""))
	}
}

// programText says how much of the guests' programs ran as machine code, or why none does.
func programText(b *strings.Builder, c *api.Card) {
	p := c.Programs
	switch {
	case c.Interpreted != "":
		fmt.Fprintf(b, "programs: interpreted, which is slower: %s\n", c.Interpreted)
		return
	case p == nil || p.Launches == 0:
		return
	}
	if p.Compiled == 0 && p.Native == 0 && p.Refused == 0 && p.Lost == 0 {
		fmt.Fprintf(b, "programs: %s, none compiled: what takes some 60 us or less runs interpreted\n", plural(p.Launches, "launch", "launches"))
		return
	}
	share := 100 * float64(p.Native) / float64(max(p.Native+p.Interpreted, 1))
	fmt.Fprintf(b, "programs: %s compiled in %v, %d instructions run, %.1f%% of them as machine code, %d left to the server; %d refused, %s lost\n",
		plural(p.Compiled, "program", "programs"), short(p.CompileTime), p.Native+p.Interpreted, share, p.Left, p.Refused, plural(p.Lost, "process", "processes"))
	if len(p.Forms) > 0 {
		names := slices.SortedFunc(maps.Keys(p.Forms), func(a, b string) int { return cmp.Compare(p.Forms[b], p.Forms[a]) })
		const most = 5
		for i, n := range names[:min(most, len(names))] {
			names[i] = fmt.Sprintf("%s %d", n, p.Forms[n])
		}
		fmt.Fprintf(b, "  most often without machine code: %s\n", strings.Join(names[:min(most, len(names))], ", "))
	}
}

// percent writes a cap.
func percent(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", n)
}

// reportText is the report of a server at its end. It leaves out what is zero.
func reportText(r *api.Report) string {
	var b strings.Builder
	var gpus []api.GPU
	clients := uint64(0)
	for i := range r.GPUs {
		gpus = append(gpus, r.GPUs[i].GPU)
		clients += r.GPUs[i].Clients
	}
	fmt.Fprintf(&b, "\nServed for %.1f s, %s.\n", r.Uptime.Seconds(), plural(clients, "client", "clients"))
	gpuTable(&b, gpus, false)
	alone := r.Setup == api.SetupPassThrough
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if !alone {
			fmt.Fprintf(&b, "\nGPU %s: %s\n", g.Name, plural(g.Clients, "client", "clients"))
		}
		gpuText(&b, g)
	}
	if clients == 0 {
		return b.String()
	}
	if !alone {
		b.WriteString("\nThe card\n")
	}
	c := &r.Card
	listTable(&b, "Engines by class", c.Classes)
	listTable(&b, "Methods stored but not executed", c.NotExecuted)
	countTable(&b, "Channels", countsOf(c.Channels))
	countTable(&b, "Translations", countsOf(c.TLB))
	countTable(&b, "Faults", countsOf(c.Faults))
	fmt.Fprintf(&b, "\nInterrupts raised by the card: %d\n", c.Interrupts)
	ledgerText(&b, c.Ledger)
	return b.String()
}

// schedulerText describes how the card's time is shared. It lists the parameters of
// all policies: those of the others count once the policy is changed.
func schedulerText(b *strings.Builder, s *api.Scheduler) {
	fmt.Fprintf(b, "Card time is shared by %s\n", s.Policy)
	before := make(map[string]string)
	head := "key\tvalue\tdefault"
	for _, c := range s.Changes {
		before[c.Key] = c.Before
		head = "key\tvalue\tdefault\twas"
	}
	t := newTable(b, "Parameters", head)
	for _, p := range s.Settings {
		t.row("%s", strings.TrimSuffix(fmt.Sprintf("%s\t%s\t%s\t%s", p.Key, p.Value, p.Default, before[p.Key]), "\t"))
	}
	t.flush()
	listTable(b, "Shares of GPUs", s.Shares)
	countTable(b, "Events that should not happen", countsOf(s.Counts))
}

// ledgerText writes the account of the card's time as a tree.
func ledgerText(b *strings.Builder, n *api.LedgerNode) {
	if n == nil {
		return
	}
	head := "who\tweight\tpart"
	for i := range n.Engines {
		head += "\t" + n.Engines[i].Engine
	}
	t := newTable(b, "Card time in detail; a part is of the line above it", head+"\twaited\trequests\tentries\theld\toverrun\tnow")
	ledgerRows(t, n, nil, 0)
	t.flush()
}

func ledgerRows(t *table, n, above *api.LedgerNode, depth int) {
	var part, now, weight string
	if above != nil {
		part = partOf(n.Engines, above.Engines)
	}
	switch {
	case n.Blocked != "":
		now = n.Blocked
	case n.Waiting+n.OnCard > 0:
		now = fmt.Sprintf("%d on the card, %d wait", n.OnCard, n.Waiting)
	}
	if n.Kind == "guest" || n.Kind == "group" {
		weight = fmt.Sprint(n.Weight)
	}
	ledgerRow(t, depth, n.Name, weight, part, n.Engines, now)
	for i := range n.Children {
		ledgerRows(t, &n.Children[i], n, depth+1)
	}
	if n.Ended != nil {
		ledgerRow(t, depth+1, "(ended)", "", partOf(n.Ended, n.Engines), n.Ended, "")
	}
}

func ledgerRow(t *table, depth int, name, weight, part string, engines []api.EngineAccount, now string) {
	a := api.Total(engines)
	row := strings.Repeat("  ", depth) + name + "\t" + weight + "\t" + part
	for i := range engines {
		row += "\t" + short(engines[i].Busy).String()
	}
	t.row("%s", strings.TrimRight(fmt.Sprintf("%s\t%v\t%d\t%d\t%d\t%v\t%s", row, short(a.Wait), a.Requests, a.Entries, a.Held, short(a.Overrun), now), "\t"))
}

// partOf is a child's part of the time that engines worked for its parent.
func partOf(child, parent []api.EngineAccount) string {
	c, p := api.Total(child), api.Total(parent)
	if p.Busy == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(c.Busy)/float64(p.Busy))
}
