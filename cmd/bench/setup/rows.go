// Package setup is the ways to serve a GPU that umbra bench compares: rows of
// options, and what stands for one row while it is measured.
//
// A set-up is data: a name and option values as a user of umbra serve would write
// them. A new option joins by a row in Rows, and nothing else.
//
// A Bed owns a card, its servers and the folder of their sockets; Close ends
// them. Its gauges count and time traps with atomics and have no lock, but for
// one that guards who is attached. Goroutines: one for each server, until Close.
package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Row is one set-up.
type Row struct {
	Name  string
	About string
	// Whole gives the card itself to the one guest there is.
	Whole bool
	// GPU are options of each virtual GPU, as in --gpu, or of the whole card.
	GPU map[string]string
	// Server and Limits are options of the configuration's sections of those names.
	Server, Limits map[string]string
	// Bells says that it stands for a way that doorbells go.
	Bells bool
	// Inside says that virtual machines measure it only for those who name it: what it
	// tells is told in this process, and a run of machines is long.
	Inside bool
}

// Set-ups that are called by name: Naive stands for GPUvm's full virtualization, All
// has what takes the traps away together.
const (
	Naive = report.Naive
	All   = report.All
)

// Options that rows set.
const (
	optSync = "shadow.sync"
	optScan = "shadow.scan"
	optMap  = "bar-map"
	optBell = "doorbell"

	optTableRate = "table-rate"

	mapAll   = "all"
	bellPoll = "poll"
)

// unlimited has naive, and what changes an option of it, do the work on tables as fast as it
// can be done: with the limit that guests have by default, half of the time that a scan of
// large tables takes would be waiting.
var unlimited = map[string]string{optTableRate: "1TiB"}

// Rows are the set-ups: pass-through, naive, each option alone, and all together.
var Rows = []Row{
	{
		Name: report.PassThrough, Whole: true, GPU: map[string]string{optMap: "none"},
		About: "The card itself behind the socket, one guest, nothing in between, every access trapped",
		Bells: true,
	},
	{
		Name: "pass-through+map", Whole: true, GPU: map[string]string{optMap: mapAll},
		About: "The card itself, and the guest maps BAR1, BAR3, PRAMIN and the ROM",
		Bells: true,
	},
	{
		Name:   Naive,
		About:  "GPUvm's full virtualization: every access trapped, all tables scanned at each TLB invalidate",
		GPU:    map[string]string{optSync: "flush", optScan: "full", optMap: "none"},
		Limits: unlimited,
	},
	{
		Name:   "lazy",
		About:  "Naive, but tables wait for the next submission that could see them",
		GPU:    map[string]string{optSync: "lazy", optScan: "full", optMap: "none"},
		Limits: unlimited,
	},
	{
		Name:   "incremental",
		About:  "Naive, but only what changed is looked at",
		GPU:    map[string]string{optSync: "flush", optScan: "incremental", optMap: "none"},
		Limits: unlimited,
	},
	{
		Name:   "eager",
		About:  "Incremental, and each trapped write of an entry is applied at once",
		GPU:    map[string]string{optSync: "eager", optScan: "incremental", optMap: "none"},
		Limits: unlimited,
	},
	{
		Name:   "mapped",
		About:  "Naive, but the guest maps BAR1, BAR3, PRAMIN and the ROM",
		GPU:    map[string]string{optSync: "flush", optScan: "full", optMap: mapAll},
		Limits: unlimited,
	},
	{
		Name:   "poll",
		About:  "Naive, but the guest maps the doorbells, and the server looks for them",
		GPU:    map[string]string{optSync: "flush", optScan: "full", optMap: "none", optBell: bellPoll},
		Limits: unlimited,
		// QEMU waits for each write of a nouveau that maps nothing else: more than a minute.
		Inside: true,
	},
	{
		Name:  "lazy+incremental",
		About: "Naive, but tables wait, and only what changed is looked at: all without mapping",
		GPU:   map[string]string{optSync: "lazy", optScan: "incremental", optMap: "none"},
		Bells: true,
	},
	{
		Name:  All,
		About: "Lazy and incremental, and the guest maps all that can be mapped",
		GPU:   map[string]string{optSync: "lazy", optScan: "incremental", optMap: mapAll},
		Bells: true,
	},
	{
		Name:  report.AllPoll,
		About: "All, and the guest maps the doorbells too",
		GPU:   map[string]string{optSync: "lazy", optScan: "incremental", optMap: mapAll, optBell: bellPoll},
		Bells: true,
	},
}

// Names of rows, in their order.
func Names(rows []Row) (names []string) {
	for i := range rows {
		names = append(names, rows[i].Name)
	}
	return names
}

// Choose picks rows by name, in the order of Rows. No names pick all.
func Choose(names []string) ([]Row, error) {
	if len(names) == 0 {
		return slices.Clone(Rows), nil
	}
	for _, n := range names {
		if known := Names(Rows); !slices.Contains(known, n) {
			return nil, &config.Error{Where: "--setups", Value: n, Reason: "no such set-up; " + config.Known(n, known)}
		}
	}
	var out []Row
	for i := range Rows {
		if slices.Contains(names, Rows[i].Name) {
			out = append(out, Rows[i])
		}
	}
	return out, nil
}

// Mapped tells whether the guest maps anything.
func (r *Row) Mapped() bool {
	return r.GPU[optMap] != "" && r.GPU[optMap] != "none" || r.GPU[optBell] == bellPoll
}

// has tells whether the row has a count of the aggregator's at all: who reads all tables and
// writes them anew does not ask what changed, and who maps nothing moves no page.
func (r *Row) has(count string) bool {
	switch count {
	case report.Changed:
		return r.GPU[optScan] != "full"
	case report.MapScans, report.MapPages:
		return r.Mapped()
	}
	return true
}

// Options are the row's option values, by section and key.
func (r *Row) Options() map[string]string {
	out := map[string]string{}
	face := "gpu."
	if r.Whole {
		face = "card."
	}
	for k, v := range r.GPU {
		out[face+k] = v
	}
	for k, v := range r.Server {
		out["server."+k] = v
	}
	for k, v := range r.Limits {
		out["limits."+k] = v
	}
	return out
}

// Shape is what a bed is made of, whatever the set-up.
type Shape struct {
	Card uint64 // bytes of VRAM, to be shared
	GPUs int
	VRAM uint64 // of each virtual GPU, and of the card that one guest has
	// Tables is the memory for page-table shadows of each; 0 is the default.
	Tables uint64
	// Scheduler are options of the configuration's section of that name; none are the
	// default. The whole card has no scheduler.
	Scheduler map[string]string
}

// Common is the shape of most scenarios.
var Common = Shape{Card: 512 << 20, GPUs: 1, VRAM: 256 << 20, Tables: 64 << 20}

// layer is the configuration of a row in a shape, as umbra serve would make it
// out of what a user writes.
func (r *Row) layer(s Shape, socket func(i int) string) (config.Layer, error) {
	var file strings.Builder
	if r.Whole {
		fmt.Fprintf(&file, "card:\n  vram: %dMiB\n", s.VRAM>>20)
		write(&file, r.GPU)
	} else {
		fmt.Fprintf(&file, "card:\n  vram: %dMiB\n", s.Card>>20)
	}
	if len(r.Server) > 0 {
		file.WriteString("server:\n")
		write(&file, r.Server)
	}
	if len(r.Limits) > 0 {
		file.WriteString("limits:\n")
		write(&file, r.Limits)
	}
	if len(s.Scheduler) > 0 && !r.Whole {
		file.WriteString("scheduler:\n")
		write(&file, s.Scheduler)
	}
	source := "set-up " + r.Name
	from, err := config.Parse(source, []byte(file.String()))
	if err != nil {
		return config.Layer{}, err
	}
	var gpus config.Config
	if r.Whole {
		gpus.Socket = socket(0)
		return config.Join(config.Defaults(), from, config.Flags(gpus, []string{"socket"}))
	}
	for i := range s.GPUs {
		text := fmt.Sprintf("name=gpu%d,socket=%s,vram=%dMiB", i, socket(i), s.VRAM>>20)
		if s.Tables != 0 {
			text += fmt.Sprintf(",tables=%dMiB", s.Tables>>20)
		}
		for _, k := range slices.Sorted(maps.Keys(r.GPU)) {
			text += "," + k + "=" + r.GPU[k]
		}
		g, err := config.ParseGPU(source, text)
		if err != nil {
			return config.Layer{}, err
		}
		gpus.GPUs = append(gpus.GPUs, g)
	}
	return config.Join(config.Defaults(), from, config.Flags(gpus, nil))
}

// write writes options as keys of a section.
func write(file *strings.Builder, options map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(file, "  %s: %s\n", k, options[k])
	}
}
