package serve

import (
	"cmp"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// load reads numbers from counters of the same names, or of those in the tags from.
func load(into, from any) {
	to, counters := reflect.ValueOf(into).Elem(), reflect.Indirect(reflect.ValueOf(from))
	for i := range to.NumField() {
		f := to.Type().Field(i)
		source := f.Tag.Get("from")
		c := counters.FieldByName(cmp.Or(source, f.Name))
		switch {
		case f.Type.Kind() != reflect.Uint64 || source == "" && !c.IsValid(): // the caller's
		case c.CanUint():
			to.Field(i).SetUint(c.Uint())
		default:
			to.Field(i).SetUint(c.Addr().Interface().(*atomic.Uint64).Load())
		}
	}
}

// ReportCard reads a software card's counters; those of others are zero. It may be called while guests run.
func ReportCard(card *soft.Card) api.CardReport {
	if card == nil {
		return api.CardReport{}
	}
	c := card.Stats()
	r := api.CardReport{Card: api.Card{Interrupts: c.Interrupts.Load()}}
	for _, part := range []any{&r.Channels, &r.TLB, &r.Faults} {
		load(part, c)
	}
	for _, class := range engine.Classes() {
		k := api.ClassCount{Class: fmt.Sprintf("%04x", class.ID), Name: class.Name}
		load(&k, c.Engine.Class(class.ID))
		r.Bytes += k.Bytes
		if k.Methods+k.Refused > 0 {
			r.Classes = append(r.Classes, k)
		}
	}
	for _, n := range c.Engine.NotExecuted() {
		r.NotExecuted = append(r.NotExecuted, api.IgnoredMethod{Class: fmt.Sprintf("%04x", n.Class), Name: n.Name, Count: n.Count})
	}
	return r
}

// workOf lists what engines did for an owner of channels, by class.
func workOf(w *engine.Work) (out []api.WorkCount) {
	for _, class := range engine.Classes() {
		copies, bytes := w.Class(class.ID)
		out = append(out, api.WorkCount{Class: fmt.Sprintf("%04x", class.ID), Name: class.Name, Copies: copies, Bytes: bytes})
	}
	return out
}

// countWork returns what lists the classes that do something from now on: an owner's number may have
// been another guest's before.
func countWork(w *engine.Work) func() []api.WorkCount {
	before := workOf(w)
	return func() (out []api.WorkCount) {
		for i, n := range workOf(w) {
			n.Copies -= before[i].Copies
			n.Bytes -= before[i].Bytes
			if n.Copies+n.Bytes > 0 {
				out = append(out, n)
			}
		}
		return out
	}
}

// Status reads the endpoint's most important counters. It may be called while its
// guest runs. Options are left to the caller.
func (e *Endpoint) Status() api.GPU {
	stats := e.Server.Stats()
	g := api.GPU{
		Name: e.Name, Chip: e.Config.Device.Name(), Attached: e.Device.HasClient(), Clients: stats.Clients, Interrupts: stats.IRQ.Signalled,
		Counts: make(map[string]uint64), RulesBroken: make(map[string]uint64),
		Inexact: e.inexact(),
	}
	g.ClientPID, g.ClientUser = e.Device.Client()
	for r, n := range stats.DMARefused {
		g.RulesBroken[vfiouser.DMARule(r).String()] = n
	}
	for _, r := range e.Device.Traps() {
		g.Traps += r.Reads + r.Writes
	}
	if e.Virtual == nil {
		for _, c := range e.Device.shown.Counts() {
			g.Counts[c.Name] = c.N
		}
		return g
	}
	share, guest := &e.Config.Share, e.Virtual.Guest
	g.Unsupported = e.Virtual.unsupported()
	g.Socket, g.VRAM, g.Tables, g.Channels = e.Config.Socket, share.VRAM, share.Tables, share.Channels
	for _, c := range guest.Stats().Counts() {
		if c.Rule {
			g.RulesBroken[c.Name] = c.N
		} else {
			g.Counts[c.Name] = c.N
		}
	}
	g.Faults = faultsOf(g.Counts)
	for _, w := range e.work() {
		g.Bytes += w.Bytes
	}
	g.Quarantine = guest.QuarantineReason()
	if err := e.Virtual.Dirty(); err != nil {
		g.OutOfService = err.Error()
	}
	g.ShadowTime = time.Duration(guest.Stats().Shadow.ShadowTime.Load())
	return g
}

// faultsOf sums up the faults among a guest's counts.
func faultsOf(counts map[string]uint64) uint64 {
	return counts["mmu_faults"] + counts["pbdma_errors"] + counts["engine_errors"] + counts["window_faults"] + counts["runaways"]
}

// inexact lists the mapped windows that show wrong data, by reason. It leaves out
// what happens to each client when it attaches.
func (e *Endpoint) inexact() (list []api.InexactWindow) {
	for _, c := range e.Device.shown.Counts() {
		for k, n := range c.In {
			if n > 0 && c.Why != "" && !c.Usual {
				list = append(list, api.InexactWindow{Name: c.Name, Window: aperture.Kind(k).String(), Count: n, Unit: c.Unit, Reason: c.Why, Consequence: c.Then})
			}
		}
	}
	return list
}

// Report reads all counters of the endpoint. It may be called while its guest runs.
func (e *Endpoint) Report() api.GPUReport { return e.report((*mmio.Space).Report) }

// numbers is the Report without lists that a guest can make long.
func (e *Endpoint) numbers() api.GPUReport { return e.report((*mmio.Space).Summary) }

func (e *Endpoint) report(registers func(*mmio.Space) mmio.Report) api.GPUReport {
	v := e.Server.Stats()
	r := api.GPUReport{
		GPU: e.Status(), Registers: registers(e.Device.Registers()), Regions: e.Device.Traps(), Work: e.work(),
		Delivery: api.DeliveryCount{Masked: v.IRQ.Latched, Unrouted: v.IRQ.Unrouted},
	}
	load(&r.Connections, v)
	for _, n := range v.DMARefused {
		r.Connections.MemoryRefused += n
	}
	if e.Virtual != nil {
		r.UnmapTime = time.Duration(e.Virtual.Guest.Stats().UnmapTime.Load())
		stopped, _ := e.Virtual.Guest.Stats().Channels.Stopped.Since(0)
		for _, x := range stopped {
			r.Stopped = append(r.Stopped, api.Stopped{Time: x.At, Channel: int(x.Channel), Engine: x.Fault.Engine.String(), Reason: x.Fault.String()})
		}
	}
	message := func(name string, s vfiouser.CommandStats) {
		if m := (api.MessageCount{Command: name}); s.Messages > 0 {
			load(&m, s)
			r.Messages = append(r.Messages, m)
		}
	}
	for i, m := range v.Commands {
		message(wire.Command(i).String(), m)
	}
	message("unknown", v.Unknown)
	return r
}
