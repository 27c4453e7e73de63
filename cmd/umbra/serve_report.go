package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// report is what happened while serving.
type report struct {
	Event       string         `json:"event"` // "report"
	Seconds     float64        `json:"seconds"`
	Clients     clientCount    `json:"clients"`
	Messages    []messageCount `json:"messages,omitempty"`
	Regions     []regionCount  `json:"regions,omitempty"`
	Registers   mmio.Report    `json:"registers"`
	Channels    channelCount   `json:"channels"`
	Classes     []classCount   `json:"classes,omitempty"`
	NotExecuted []triggerCount `json:"not_executed,omitempty"`
	Interrupts  interruptCount `json:"interrupts"`
	Faults      faultCount     `json:"faults"`
}

type clientCount struct {
	Served     uint64 `json:"served"`
	Refused    uint64 `json:"refused"`     // because another was attached
	BadStreams uint64 `json:"bad_streams"` // ended because nothing could be made of them
	Panics     uint64 `json:"panics"`      // of the device, contained
}

type messageCount struct {
	Command  string `json:"command"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Posted   uint64 `json:"posted"`
	Errors   uint64 `json:"errors"`
}

type regionCount struct {
	Region string `json:"region"`
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	Bytes  uint64 `json:"bytes"`
}

type channelCount struct {
	Doorbells uint64 `json:"doorbells"`
	Entries   uint64 `json:"gpfifo_entries"`
	Words     uint64 `json:"pushbuffer_words"`
	Methods   uint64 `json:"methods"`
	Releases  uint64 `json:"semaphore_releases"`
	Acquires  uint64 `json:"semaphore_acquires"`
	Runlists  uint64 `json:"runlists"`
}

type classCount struct {
	Class      string `json:"class"` // as "9039"
	Name       string `json:"name"`
	Methods    uint64 `json:"methods"`
	Copies     uint64 `json:"copies"` // and uploads
	Bytes      uint64 `json:"bytes"`
	Semaphores uint64 `json:"semaphores"`
	Refused    uint64 `json:"refused"` // methods
}

type triggerCount struct {
	Class string `json:"class"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

type interruptCount struct {
	Raised    uint64 `json:"raised"`    // by the card
	Signalled uint64 `json:"signalled"` // to the last client
	Coalesced uint64 `json:"coalesced"`
	Masked    uint64 `json:"masked"`
	Unrouted  uint64 `json:"unrouted"`
}

type faultCount struct {
	MMU      uint64 `json:"mmu"`
	PBDMA    uint64 `json:"pbdma"`
	Engine   uint64 `json:"engine"`
	BAR      uint64 `json:"bar"`
	Doorbell uint64 `json:"doorbell"`
}

var regionNames = [vfiouser.NumRegions]string{
	vfiouser.RegionBAR0: "BAR0", vfiouser.RegionBAR1: "BAR1", vfiouser.RegionBAR2: "BAR2",
	vfiouser.RegionBAR3: "BAR3", vfiouser.RegionBAR4: "BAR4", vfiouser.RegionBAR5: "BAR5",
	vfiouser.RegionROM: "ROM", vfiouser.RegionConfig: "configuration", vfiouser.RegionVGA: "VGA",
}

// collect reads all counters. It may be called while a guest runs.
func (s *served) collect() (report, error) {
	registers, err := s.card.Registers().Report(mmio.ByCount)
	if err != nil {
		return report{}, err
	}
	v, c := s.server.Stats(), s.card.Stats()
	r := report{
		Event: "report", Seconds: time.Since(s.began).Seconds(), Registers: registers,
		Clients: clientCount{Served: v.Clients, Refused: v.Refused, BadStreams: v.BadStreams, Panics: v.Panics},
		Channels: channelCount{
			Doorbells: c.Doorbells.Load(), Entries: c.GPEntries.Load(), Words: c.Words.Load(), Methods: c.Methods.Load(),
			Releases: c.Releases.Load(), Acquires: c.Acquires.Load(), Runlists: c.Runlists.Load(),
		},
		Interrupts: interruptCount{
			Raised: c.Interrupts.Load(), Signalled: v.IRQ.Signalled, Coalesced: v.IRQ.Coalesced,
			Masked: v.IRQ.Latched, Unrouted: v.IRQ.Unrouted,
		},
		Faults: faultCount{
			MMU: c.MMUFaults.Load(), PBDMA: c.PBDMAErrors.Load(), Engine: c.EngineErrors.Load(),
			BAR: c.BARFaults.Load(), Doorbell: c.StrayBells.Load(),
		},
	}
	message := func(name string, m vfiouser.CommandStats) {
		if m.Messages > 0 {
			r.Messages = append(r.Messages, messageCount{name, m.Messages, m.Bytes, m.Posted, m.Errors})
		}
	}
	for i, m := range v.Commands {
		message(wire.Command(i).String(), m)
	}
	message("unknown", v.Unknown)
	for i := range s.device.regions {
		g := &s.device.regions[i]
		if n := (regionCount{regionNames[i], g.reads.Load(), g.writes.Load(), g.bytes.Load()}); n.Reads+n.Writes > 0 {
			r.Regions = append(r.Regions, n)
		}
	}
	for _, class := range engine.Classes() {
		k := c.Engine.Class(class.ID)
		if k.Methods.Load()+k.Illegal.Load() == 0 {
			continue
		}
		r.Classes = append(r.Classes, classCount{
			Class: fmt.Sprintf("%04x", class.ID), Name: class.Name, Methods: k.Methods.Load(), Copies: k.Launches.Load(),
			Bytes: k.Bytes.Load(), Semaphores: k.Semaphores.Load(), Refused: k.Illegal.Load(),
		})
	}
	for _, n := range c.Engine.NotExecuted() {
		r.NotExecuted = append(r.NotExecuted, triggerCount{fmt.Sprintf("%04x", n.Class), n.Name, n.Count})
	}
	return r, nil
}

// report writes what happened: a short text, or all of it as one line of JSON.
func (s *served) report(asJSON bool) error {
	r, err := s.collect()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(s.out.stdout).Encode(r)
	}
	_, err = io.WriteString(s.out.stdout, r.text())
	return err
}

// reportOnSignal writes the report at each SIGUSR1 until stop is called, which
// waits for a report that is being written.
func (s *served) reportOnSignal(asJSON bool) (stop func()) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
				if err := s.report(asJSON); err != nil {
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

// text is the report for a person. What did not happen is left out.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nServed for %.1f s, %s.\n", r.Seconds, plural(r.Clients.Served, "client", "clients"))
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{r.Clients.Refused, "connections refused because a client was attached"},
		{r.Clients.BadStreams, "connections ended because their messages made no sense"},
		{r.Clients.Panics, "panics of the device, contained: please report them"},
	} {
		if c.n > 0 {
			fmt.Fprintf(&b, "%d %s\n", c.n, c.what)
		}
	}
	if r.Clients.Served == 0 {
		return b.String()
	}

	t := newTable(&b, "Traps by region", "region\treads\twrites\tbytes")
	for _, g := range r.Regions {
		t.row("%s\t%d\t%d\t%d", g.Region, g.Reads, g.Writes, g.Bytes)
	}
	t.flush()
	t = newTable(&b, "Registers by block", "block\treads\twrites\ttime")
	for _, k := range r.Registers.Blocks {
		t.row("%s\t%d\t%d\t%v", k.Name, k.Reads, k.Writes, short(k.Time))
	}
	t.flush()
	if m := r.Registers.Missed; m.HoleReads+m.HoleWrites+m.Outside > 0 {
		fmt.Fprintf(&b, "  undeclared offsets: %d reads, %d writes; outside: %d\n", m.HoleReads, m.HoleWrites, m.Outside)
	}
	t = newTable(&b, "Engines by class", "class\tname\tmethods\tcopies\tbytes moved\tsemaphores\trefused")
	for _, k := range r.Classes {
		t.row("%s\t%s\t%d\t%d\t%d\t%d\t%d", k.Class, k.Name, k.Methods, k.Copies, k.Bytes, k.Semaphores, k.Refused)
	}
	t.flush()
	t = newTable(&b, "Stored but not carried out", "class\tmethod\ttimes")
	for _, n := range r.NotExecuted {
		t.row("%s\t%s\t%d", n.Class, n.Name, n.Count)
	}
	t.flush()
	c, i, f := &r.Channels, &r.Interrupts, &r.Faults
	fmt.Fprintf(&b, "\nChannels: %d doorbells, %d GPFIFO entries, %d words, %d methods, %d semaphores released, %d acquired\n",
		c.Doorbells, c.Entries, c.Words, c.Methods, c.Releases, c.Acquires)
	fmt.Fprintf(&b, "Interrupts: %d raised; to the last client %d signalled, %d coalesced, %d while masked, %d with nowhere to go\n",
		i.Raised, i.Signalled, i.Coalesced, i.Masked, i.Unrouted)
	fmt.Fprintf(&b, "Faults: %d MMU, %d PBDMA, %d engine, %d through BARs, %d doorbells of no channel\n",
		f.MMU, f.PBDMA, f.Engine, f.BAR, f.Doorbell)
	return b.String()
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

// table is aligned columns under a title. A table without rows is not written.
type table struct {
	out         *strings.Builder
	title, head string
	w           *tabwriter.Writer
}

func newTable(out *strings.Builder, title, head string) *table { return &table{out, title, head, nil} }

func (t *table) row(format string, args ...any) {
	if t.w == nil {
		fmt.Fprintf(t.out, "\n%s\n", t.title)
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
