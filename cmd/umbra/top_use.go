package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// gpuUse is what a GPU did between two looks at its server, by second where a name says so.
type gpuUse struct {
	Time       time.Time     `json:"time"` // of the second look
	GPU        string        `json:"gpu"`
	Attached   bool          `json:"attached"`
	PID        int           `json:"pid,omitempty"` // of the client
	User       string        `json:"user,omitempty"`
	Weight     int           `json:"weight"`
	Busy       float64       `json:"busy_percent"` // of its busiest engine
	Engines    []engineUse   `json:"engines,omitempty"`
	Waiting    int           `json:"waiting"`
	OnCard     int           `json:"on_card"`
	Bytes      float64       `json:"bytes_per_s"`
	Traps      float64       `json:"traps_per_s"`
	Interrupts float64       `json:"interrupts_per_s"`
	Faults     uint64        `json:"faults"` // ever
	NewFaults  uint64        `json:"new_faults"`
	Broken     uint64        `json:"rules_broken"` // ever
	VRAM       uint64        `json:"vram"`
	Trouble    string        `json:"trouble,omitempty"` // quarantine, or why clients are refused
	ShadowTime time.Duration `json:"shadow_ns"`         // between the looks
}

type engineUse struct {
	Engine string  `json:"engine"`
	Busy   float64 `json:"busy_percent"`
}

// usesOf compares two looks. A GPU that is new, or whose counts began anew, is compared with nothing.
func usesOf(before, after *api.Status, at time.Time) []gpuUse {
	seconds := (after.Uptime - before.Uptime).Seconds()
	if before.PID != after.PID || seconds <= 0 { // another server
		before, seconds = &api.Status{}, max(after.Uptime.Seconds(), 1e-3)
	}
	was := make(map[string]*api.GPU)
	for i := range before.GPUs {
		was[before.GPUs[i].Name] = &before.GPUs[i]
	}
	list := make([]gpuUse, 0, len(after.GPUs))
	for i := range after.GPUs {
		g := &after.GPUs[i]
		b := was[g.Name]
		if b == nil || b.Traps > g.Traps || b.Clients > g.Clients {
			b = &api.GPU{}
		}
		u := gpuUse{
			Time: at, GPU: g.Name, Attached: g.Attached, PID: g.ClientPID, User: g.ClientUser, VRAM: g.VRAM, Trouble: cmp.Or(g.Quarantine, g.OutOfService), Broken: g.Broken(),
			Faults: g.Faults, NewFaults: g.Faults - min(b.Faults, g.Faults), ShadowTime: g.ShadowTime - min(b.ShadowTime, g.ShadowTime),
			Bytes: float64(g.Bytes-min(b.Bytes, g.Bytes)) / seconds, Traps: float64(g.Traps-b.Traps) / seconds,
			Interrupts: float64(g.Interrupts-min(b.Interrupts, g.Interrupts)) / seconds,
		}
		u.card(b.CardTime, g.CardTime, seconds)
		list = append(list, u)
	}
	return list
}

// card adds what the account of the card's time says.
func (u *gpuUse) card(before, after *api.LedgerNode, seconds float64) {
	if after == nil {
		return
	}
	u.Weight, u.Waiting, u.OnCard = after.Weight, after.Waiting, after.OnCard
	for i, e := range after.Engines {
		busy := e.Busy
		if before != nil && i < len(before.Engines) && before.Engines[i].Busy <= busy {
			busy -= before.Engines[i].Busy
		}
		x := engineUse{e.Engine, 100 * busy.Seconds() / seconds}
		u.Engines, u.Busy = append(u.Engines, x), max(u.Busy, x.Busy)
	}
}

// topOrders are the orders of rows by name: the first row is the one that compares lower.
var topOrders = map[string]func(a, b *gpuUse) int{
	"name":   func(a, b *gpuUse) int { return cmp.Compare(a.GPU, b.GPU) },
	"busy":   func(a, b *gpuUse) int { return cmp.Compare(b.Busy, a.Busy) },
	"traps":  func(a, b *gpuUse) int { return cmp.Compare(b.Traps, a.Traps) },
	"faults": func(a, b *gpuUse) int { return cmp.Compare(b.Faults, a.Faults) },
}

func sortUses(list []gpuUse, order string) {
	slices.SortStableFunc(list, func(a, b gpuUse) int { return topOrders[order](&a, &b) })
}

// usesText is the table of umbra top, in 80 columns, with the engines of one GPU below.
func usesText(b *strings.Builder, list []gpuUse, detail string) {
	t := newTable(b, "", "name\tclient\tuser\tweight\tbusy\twait\tcard\tMB/s\ttraps/s\tirqs/s\tfaults")
	for i := range list {
		u := &list[i]
		t.row("%s\t%s\t%s\t%d\t%.0f%%\t%d\t%d\t%.0f\t%.0f\t%.0f\t%d", u.GPU, clientText(u.Attached, u.PID), clip(cmp.Or(u.User, "-")), u.Weight, u.Busy, u.Waiting, u.OnCard, u.Bytes/1e6, u.Traps, u.Interrupts, u.Faults)
	}
	t.flush()
	for i := range list {
		u := &list[i]
		if u.Trouble != "" {
			b.WriteString("  " + u.GPU + ": " + u.Trouble + "\n")
		}
		if u.GPU != detail {
			continue
		}
		e := newTable(b, u.GPU+", "+config.Size(u.VRAM).String()+" of VRAM", "engine\tbusy")
		for _, x := range u.Engines {
			e.row("%s\t%.1f%%", x.Engine, x.Busy)
		}
		e.row("shadowing tables\t%v", short(u.ShadowTime))
		e.flush()
	}
}

// topLegend explains the columns of usesText.
var topLegend = legend([]explained{
	{"weight", "LedgerNode", "weight"}, {"busy", "EngineAccount", "busy_ns"}, {"wait", "LedgerNode", "waiting"}, {"card", "LedgerNode", "on_card"},
	{"MB/s", "GPUReport", "bytes"}, {"traps/s", "GPUReport", "traps"}, {"irqs/s", "GPUReport", "interrupts"}, {"faults", "GPUReport", "faults"},
}, "busy, in percent, is of the busiest engine; faults are those since the start")
