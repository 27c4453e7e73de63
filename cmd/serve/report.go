package serve

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Report is what happened while serving.
type Report struct {
	Event   string      `json:"event"` // "report"
	Seconds float64     `json:"seconds"`
	Card    CardReport  `json:"card"`
	GPUs    []GPUReport `json:"gpus"`             // in pass-through one: the card itself
	Ledger  *LedgerNode `json:"ledger,omitempty"` // who had how much of the card's time, if there is a scheduler
}

// CardReport is what the card did, for all its guests together.
type CardReport struct {
	Channels    ChannelCount   `json:"channels"`
	Classes     []ClassCount   `json:"classes,omitempty"`
	NotExecuted []TriggerCount `json:"not_executed,omitempty"`
	Interrupts  uint64         `json:"interrupts"` // raised
	TLB         TLBCount       `json:"tlb"`
	Faults      FaultCount     `json:"faults"`
}

// GPUReport is what one guest did to its GPU, and what came of it.
type GPUReport struct {
	Name       string             `json:"name"`
	Clients    ClientCount        `json:"clients"`
	Receives   ReceiveCount       `json:"receives"`
	Work       []WorkCount        `json:"work,omitempty"` // of a virtual GPU; in pass-through it is all the card's
	Messages   []MessageCount     `json:"messages,omitempty"`
	Regions    []RegionCount      `json:"regions,omitempty"`
	Registers  mmio.Report        `json:"registers"`
	Interrupts InterruptCount     `json:"interrupts"`
	CardTime   *CardTime          `json:"card_time,omitempty"`     // of a virtual GPU, if there is a scheduler
	UnmapTime  time.Duration      `json:"unmap_time_ns,omitempty"` // waited for the card to let go of unmapped memory
	Counts     []aggregator.Count `json:"counts,omitempty"`        // those with "rule" are rules that the guest broke; in pass-through there are fewer
	Inexact    []Inexact          `json:"inexact,omitempty"`       // mapped windows that do not show what they should
}

// ClientCount counts connections.
type ClientCount struct {
	Served     uint64 `json:"served"`
	Refused    uint64 `json:"refused"`        // because another was attached, or the GPU out of service
	BadStreams uint64 `json:"bad_streams"`    // ended because nothing could be made of them
	Panics     uint64 `json:"panics"`         // of the device, contained
	Memory     uint64 `json:"memory_refused"` // ranges of it, beyond limits of the DMA map
}

// ReceiveCount counts reads of the socket.
type ReceiveCount struct {
	Blocked uint64 `json:"blocked"`
}

// MessageCount counts one command of the protocol.
type MessageCount struct {
	Command  string `json:"command"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Posted   uint64 `json:"posted"`
	Errors   uint64 `json:"errors"`
}

// RegionCount counts the traps of one region.
type RegionCount struct {
	Region string `json:"region"`
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	Bytes  uint64 `json:"bytes"`
}

// ChannelCount counts what the card fetched.
type ChannelCount struct {
	Doorbells uint64 `json:"doorbells"`
	Entries   uint64 `json:"gpfifo_entries"`
	Words     uint64 `json:"pushbuffer_words"`
	Methods   uint64 `json:"methods"`
	Releases  uint64 `json:"semaphore_releases"`
	Acquires  uint64 `json:"semaphore_acquires"`
	Runlists  uint64 `json:"runlists"`
}

// ClassCount counts the work of one engine class.
type ClassCount struct {
	Class      string `json:"class"` // as "9039"
	Name       string `json:"name"`
	Methods    uint64 `json:"methods"`
	Copies     uint64 `json:"copies"` // and uploads
	Bytes      uint64 `json:"bytes"`
	Semaphores uint64 `json:"semaphores"`
	Refused    uint64 `json:"refused"` // methods
}

// WorkCount counts what one guest had the engines of a class move.
type WorkCount struct {
	Class  string `json:"class"` // as "9039"
	Name   string `json:"name"`
	Copies uint64 `json:"copies"` // and uploads
	Bytes  uint64 `json:"bytes"`
}

// TriggerCount counts a method that was stored but not carried out.
type TriggerCount struct {
	Class string `json:"class"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// InterruptCount counts interrupts to the last client.
type InterruptCount struct {
	Signalled uint64 `json:"signalled"`
	Coalesced uint64 `json:"coalesced"`
	Masked    uint64 `json:"masked"`
	Unrouted  uint64 `json:"unrouted"`
}

// TLBCount counts what the card did with translations.
type TLBCount struct {
	Invalidates uint64 `json:"invalidates"` // asked for by the driver, or by channels
	Flushes     uint64 `json:"flushes"`     // address spaces that forgot theirs for one
	Misses      uint64 `json:"misses"`      // look-ups that walked the tables
}

// FaultCount counts the card's faults.
type FaultCount struct {
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

// ReportCard reads the card's counters. It may be called while guests run.
func ReportCard(card *soft.Card) CardReport {
	c := card.Stats()
	r := CardReport{
		Channels: ChannelCount{
			Doorbells: c.Doorbells.Load(), Entries: c.GPEntries.Load(), Words: c.Words.Load(), Methods: c.Methods.Load(),
			Releases: c.Releases.Load(), Acquires: c.Acquires.Load(), Runlists: c.Runlists.Load(),
		},
		Interrupts: c.Interrupts.Load(),
		TLB:        TLBCount{Invalidates: c.Invalidates.Load(), Flushes: c.TLBFlushes.Load(), Misses: c.TLBMisses.Load()},
		Faults: FaultCount{
			MMU: c.MMUFaults.Load(), PBDMA: c.PBDMAErrors.Load(), Engine: c.EngineErrors.Load(),
			BAR: c.BARFaults.Load(), Doorbell: c.StrayBells.Load(),
		},
	}
	for _, class := range engine.Classes() {
		k := c.Engine.Class(class.ID)
		if k.Methods.Load()+k.Illegal.Load() == 0 {
			continue
		}
		r.Classes = append(r.Classes, ClassCount{
			Class: fmt.Sprintf("%04x", class.ID), Name: class.Name, Methods: k.Methods.Load(), Copies: k.Launches.Load(),
			Bytes: k.Bytes.Load(), Semaphores: k.Semaphores.Load(), Refused: k.Illegal.Load(),
		})
	}
	for _, n := range c.Engine.NotExecuted() {
		r.NotExecuted = append(r.NotExecuted, TriggerCount{fmt.Sprintf("%04x", n.Class), n.Name, n.Count})
	}
	return r
}

// accounts are a card's accounts of what it did for whom.
type accounts interface{ Stats() *soft.Stats }

// account is what a card did for one owner of channels since the account was
// opened: the owner before may have had the same place.
type account struct {
	work *engine.Work
	base []WorkCount
}

func openAccount(c accounts, owner int) *account {
	a := &account{work: &c.Stats().Owners[owner]}
	a.base = a.all()
	return a
}

// all lists every class, whatever it did.
func (a *account) all() (out []WorkCount) {
	for _, class := range engine.Classes() {
		copies, bytes := a.work.Class(class.ID)
		out = append(out, WorkCount{fmt.Sprintf("%04x", class.ID), class.Name, copies, bytes})
	}
	return out
}

// counts lists the classes that did something.
func (a *account) counts() (out []WorkCount) {
	for i, w := range a.all() {
		w.Copies -= a.base[i].Copies
		w.Bytes -= a.base[i].Bytes
		if w.Copies+w.Bytes > 0 {
			out = append(out, w)
		}
	}
	return out
}

// Work lists what the seat's guests had the engines move, by class. It is empty in
// pass-through, where it is all the card's.
func (s *Endpoint) Work() []WorkCount {
	if s.account == nil {
		return nil
	}
	return s.account.counts()
}

// Report reads the seat's counters. It may be called while its guest runs.
func (s *Endpoint) Report() (GPUReport, error) {
	registers, err := s.Registers().Report(mmio.ByCount)
	if err != nil {
		return GPUReport{}, err
	}
	v := s.Server.Stats()
	r := GPUReport{
		Name: s.Name, Registers: registers, Regions: s.Device.Traps(), Work: s.Work(), Counts: s.Counts(), Inexact: s.Inexact(),
		Clients:    ClientCount{Served: v.Clients, Refused: v.Refused, BadStreams: v.BadStreams, Panics: v.Panics, Memory: v.RegionsRefused + v.MappingsRefused + v.SizesRefused},
		Receives:   ReceiveCount{Blocked: v.Blocked},
		Interrupts: InterruptCount{Signalled: v.IRQ.Signalled, Coalesced: v.IRQ.Coalesced, Masked: v.IRQ.Latched, Unrouted: v.IRQ.Unrouted},
	}
	if s.guest != nil {
		r.UnmapTime = time.Duration(s.guest.Stats().UnmapTime.Load())
	}
	message := func(name string, m vfiouser.CommandStats) {
		if m.Messages > 0 {
			r.Messages = append(r.Messages, MessageCount{name, m.Messages, m.Bytes, m.Posted, m.Errors})
		}
	}
	for i, m := range v.Commands {
		message(wire.Command(i).String(), m)
	}
	message("unknown", v.Unknown)
	return r, nil
}

// Traps lists the regions that were touched.
func (w *Counted) Traps() []RegionCount {
	var out []RegionCount
	for i := range w.regions {
		g := &w.regions[i]
		if n := (RegionCount{regionNames[i], g.reads.Load(), g.writes.Load(), g.bytes.Load()}); n.Reads+n.Writes > 0 {
			out = append(out, n)
		}
	}
	return out
}
