package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// collect reads all counters. It may be called while guests run.
func (s *served) collect() (serve.Report, error) {
	r := serve.Report{Event: "report", Seconds: time.Since(s.began).Seconds(), Card: s.reportCard()}
	var times map[string]serve.CardTime
	if s.shared != nil {
		times, r.Ledger = s.shared.CardTimes(), s.shared.Ledger()
	}
	for _, seat := range s.seats() {
		g, err := seat.Report()
		if err != nil {
			return r, err
		}
		if t, ok := times[g.Name]; ok {
			g.CardTime = &t
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r, nil
}

// reportCard reads the card's counters.
func (s *served) reportCard() serve.CardReport { return serve.ReportCard(s.card) }

// seats lists what guests attach to.
func (s *served) seats() []*serve.Endpoint {
	if s.seat != nil {
		return []*serve.Endpoint{s.seat}
	}
	var out []*serve.Endpoint
	for _, v := range s.shared.GPUs() {
		out = append(out, v.Endpoint)
	}
	return out
}

// report writes what happened: a short text, or all of it as one line of JSON.
func (s *served) report() error {
	r, err := s.collect()
	if err != nil {
		return err
	}
	if s.json {
		return json.NewEncoder(s.out.stdout).Encode(r)
	}
	_, err = io.WriteString(s.out.stdout, reportText(&r, s.alone))
	return err
}

// reportOnSignal writes the report at each SIGUSR1 until stop is called, which
// waits for a report that is being written.
func (s *served) reportOnSignal() (stop func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
				if err := s.report(); err != nil {
					fmt.Fprintf(s.out.stderr, "umbra: report: %v\n", err)
				}
			case <-end:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(end)
		<-ended
	}
}

// reportText is the report for a person, of a card that one guest has alone or of one that is
// shared. What did not happen is left out.
func reportText(r *serve.Report, alone bool) string {
	var b strings.Builder
	clients := uint64(0)
	for i := range r.GPUs {
		clients += r.GPUs[i].Clients.Served
	}
	fmt.Fprintf(&b, "\nServed for %.1f s, %s.\n", r.Seconds, plural(clients, "client", "clients"))
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if !alone {
			fmt.Fprintf(&b, "\nGPU %s: %s\n", g.Name, plural(g.Clients.Served, "client", "clients"))
		}
		gpuText(&b, g)
	}
	if clients > 0 {
		if !alone {
			b.WriteString("\nThe card\n")
		}
		cardText(&b, &r.Card)
		b.WriteString(ledgerText(r.Ledger))
	}
	return b.String()
}

func gpuText(b *strings.Builder, g *serve.GPUReport) {
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{g.Clients.Refused, "connections refused: a client was attached, or the GPU was out of service"},
		{g.Clients.BadStreams, "connections ended because their messages made no sense"},
		{g.Clients.Memory, "ranges of a client's memory refused: beyond max-dma-regions, max-dma-mappings or max-dma-size, as the log says"},
		{g.Clients.Panics, "panics of the device, contained: please report them"},
	} {
		if c.n > 0 {
			fmt.Fprintf(b, "%d %s\n", c.n, c.what)
		}
	}
	if g.Clients.Served == 0 {
		return
	}
	t := newTable(b, "Traps by region", "region\treads\twrites\tbytes")
	for _, g := range g.Regions {
		t.row("%s\t%d\t%d\t%d", g.Region, g.Reads, g.Writes, g.Bytes)
	}
	t.flush()
	t = newTable(b, "Registers by block", "block\treads\twrites\ttime")
	for _, k := range g.Registers.Blocks {
		t.row("%s\t%d\t%d\t%v", k.Name, k.Reads, k.Writes, short(k.Time))
	}
	t.flush()
	if m := g.Registers.Missed; m.HoleReads+m.HoleWrites+m.Outside > 0 {
		fmt.Fprintf(b, "  undeclared offsets: %d reads, %d writes; outside: %d\n", m.HoleReads, m.HoleWrites, m.Outside)
	}
	t = newTable(b, "Moved by engines", "class\tname\tcopies\tbytes")
	for _, w := range g.Work {
		t.row("%s\t%s\t%d\t%d", w.Class, w.Name, w.Copies, w.Bytes)
	}
	t.flush()
	countsText(b, g.Counts)
	inexactText(b, g.Inexact)
	if t := g.CardTime; t != nil {
		fmt.Fprintf(b, "\nOn the card: busy for %v, with weight %d; %s, %d entries held, which waited for %v in all\n",
			short(t.Busy), t.Weight, plural(uint64(t.Requests), "request", "requests"), t.Held, short(t.Wait))
	}
	if g.UnmapTime > 0 {
		fmt.Fprintf(b, "\nUntil the card had let go of memory that the guest unmapped: %v in all\n", short(g.UnmapTime))
	}
	i := &g.Interrupts
	fmt.Fprintf(b, "\nInterrupts to the last client: %d signalled, %d coalesced, %d while masked, %d with nowhere to go\n",
		i.Signalled, i.Coalesced, i.Masked, i.Unrouted)
}

// countsText is what of a guest's counts happened at all.
func countsText(b *strings.Builder, counts []aggregator.Count) {
	done := newTable(b, "What the guest asked for, and what came of it", "what\tcount")
	broken := newTable(b, "Rules that the guest broke", "rule\ttimes")
	for _, c := range counts {
		if !c.Rule && c.N > 0 {
			done.row("%s\t%d", c.Name, c.N)
		}
	}
	done.flush()
	for _, c := range counts {
		if c.Rule && c.N > 0 {
			broken.row("%s\t%d", c.Name, c.N)
		}
	}
	broken.flush()
}

// inexactText is which mapped windows did not show the guest what they should, why, and what
// came of it.
func inexactText(b *strings.Builder, list []serve.Inexact) {
	t := newTable(b, "Mapped windows that were not exact", "count\twindow\ttimes")
	var notes []string
	for _, x := range list {
		t.row("%s\t%s\t%d", x.Name, x.Window, x.N)
		if note := fmt.Sprintf("  %s: %s; %s\n", x.Name, x.Why, x.Then); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	t.flush()
	b.WriteString(strings.Join(notes, ""))
}

func cardText(b *strings.Builder, r *serve.CardReport) {
	t := newTable(b, "Engines by class", "class\tname\tmethods\tcopies\tbytes moved\tsemaphores\trefused")
	for _, k := range r.Classes {
		t.row("%s\t%s\t%d\t%d\t%d\t%d\t%d", k.Class, k.Name, k.Methods, k.Copies, k.Bytes, k.Semaphores, k.Refused)
	}
	t.flush()
	t = newTable(b, "Stored but not carried out", "class\tmethod\ttimes")
	for _, n := range r.NotExecuted {
		t.row("%s\t%s\t%d", n.Class, n.Name, n.Count)
	}
	t.flush()
	c, f := &r.Channels, &r.Faults
	fmt.Fprintf(b, "\nChannels: %d doorbells, %d GPFIFO entries, %d words, %d methods, %d semaphores released, %d acquired\n",
		c.Doorbells, c.Entries, c.Words, c.Methods, c.Releases, c.Acquires)
	fmt.Fprintf(b, "Translations: %d invalidates, %d address spaces flushed for them, %d misses\n", r.TLB.Invalidates, r.TLB.Flushes, r.TLB.Misses)
	fmt.Fprintf(b, "Interrupts raised by the card: %d\n", r.Interrupts)
	fmt.Fprintf(b, "Faults: %d MMU, %d PBDMA, %d engine, %d through BARs, %d doorbells of no channel\n",
		f.MMU, f.PBDMA, f.Engine, f.BAR, f.Doorbell)
}

// short rounds a time to three digits or so.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

func plural(n uint64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// table is aligned columns under a title, if it has one. A table without rows is not written.
type table struct {
	out         *strings.Builder
	title, head string
	w           *tabwriter.Writer
}

func newTable(out *strings.Builder, title, head string) *table { return &table{out, title, head, nil} }

func (t *table) row(format string, args ...any) {
	if t.w == nil {
		if t.title != "" {
			fmt.Fprintf(t.out, "\n%s\n", t.title)
		}
		t.w = tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t.w, "  %s\n", t.head)
	}
	fmt.Fprintf(t.w, "  "+format+"\n", args...)
}

func (t *table) flush() {
	if t.w != nil {
		t.w.Flush() // a strings.Builder takes everything
	}
}
