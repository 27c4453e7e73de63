// Package setup holds the ways to serve a GPU that umbra bench compares.
//
// A set-up is data: a name and configuration values. A Server serves one set-up. It owns a card,
// the servers of its GPUs and the folder of their sockets, and Close ends all of them. Each GPU has
// one goroutine. The package has no locks.
package setup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Row is one set-up.
type Row struct {
	Name  string
	About string
	// Whole gives the whole card to one guest (pass-through).
	Whole bool
	// Asked rows are measured only if --setups names them.
	Asked bool

	// Sync and Scan are shadow.sync and shadow.scan.
	Sync, Scan string
	Map        string // bar-map
	// TableRate is limits.table-rate; "" is the default.
	TableRate string
	// Transport is server.transport; "" is the default.
	Transport string
}

// Names of set-ups that the code refers to.
const (
	PassThrough = "pass-through"
	Naive       = "naive"
	All         = "all"
)

// unlimited is the table rate of the set-ups that scan all tables. With the default rate, half of
// their time would be waiting for the limit.
const unlimited = "1TiB"

// Rows are all set-ups. The first one is the baseline.
var Rows = []Row{
	{Name: PassThrough, Whole: true, Map: "none", About: "the whole card for one guest; every access is trapped"},
	{Name: "pass-through+map", Whole: true, Map: "all", About: "the whole card for one guest, which maps BAR1, BAR3, PRAMIN and the ROM"},
	{Name: Naive, Sync: "flush", Scan: "full", Map: "none", TableRate: unlimited, About: "GPUvm's full virtualization: every access is trapped, each TLB invalidate scans all tables"},
	{Name: "naive+lazy", Asked: true, Sync: "lazy", Scan: "full", Map: "none", TableRate: unlimited, About: "naive, but tables are scanned before the next submission that can use them"},
	{Name: "naive+incremental", Asked: true, Sync: "flush", Scan: "incremental", Map: "none", TableRate: unlimited, About: "naive, but only changed entries are scanned"},
	{Name: "naive+eager", Asked: true, Sync: "eager", Scan: "incremental", Map: "none", TableRate: unlimited, About: "naive+incremental, and each trapped write of an entry is applied at once"},
	{Name: "naive+map", Asked: true, Sync: "flush", Scan: "full", Map: "all", TableRate: unlimited, About: "naive, but the guest maps BAR1, BAR3, PRAMIN and the ROM"},
	{Name: "trapped", Sync: "lazy", Scan: "incremental", Map: "none", About: "lazy and incremental, every access is trapped"},
	{Name: All, Sync: "lazy", Scan: "incremental", Map: "all", About: "lazy and incremental, and the guest maps what it can; the default of umbra serve"},
}

// Echo is the set-up of the scenario transport that has no server: a loop of two blocking system
// calls, which is the floor for any server.
const Echo = "echo"

// Transports returns the set-ups of the scenario transport: a whole card behind each transport of
// this build.
func Transports() []Row {
	rows := []Row{{Name: serve.TransportNative, Whole: true, Map: "none", Transport: serve.TransportNative}}
	if libvfiouser.Built {
		rows = append(rows, Row{Name: serve.TransportLibrary, Whole: true, Map: "none", Transport: serve.TransportLibrary})
	}
	return rows
}

// EchoRow is the set-up Echo. Its server is not used.
func EchoRow() Row { return Row{Name: Echo, Whole: true, Map: "none"} }

// Names returns the names of rows.
func Names(rows []Row) (names []string) {
	for i := range rows {
		names = append(names, rows[i].Name)
	}
	return names
}

// Every selects all rows, also those that are measured only if they are named.
const Every = "every"

// Choose returns the named rows in the order of Rows, or the default rows for no names.
func Choose(names []string) ([]Row, error) {
	if slices.Equal(names, []string{Every}) {
		return Rows, nil
	}
	for _, n := range names {
		if known := Names(Rows); !slices.Contains(known, n) {
			return nil, &config.Error{Where: "--setups", Value: n, Reason: "no such set-up; " + config.Known(n, append(known, Every))}
		}
	}
	return slices.DeleteFunc(slices.Clone(Rows), func(r Row) bool {
		if len(names) == 0 {
			return r.Asked
		}
		return !slices.Contains(names, r.Name)
	}), nil
}

// Mapped reports whether the guest maps anything.
func (r *Row) Mapped() bool { return r.Map != "none" }

// Shape is the size of a server, the same with every set-up.
type Shape struct {
	Card   uint64 // bytes of VRAM of a shared card
	GPUs   int
	VRAM   uint64 // of each virtual GPU, and of a card that one guest has
	Policy string // of the scheduler; "" is the default. A whole card has no scheduler.
}

// Common is the shape of most scenarios.
var Common = Shape{Card: 512 << 20, GPUs: 1, VRAM: 256 << 20}

// section is a part of a configuration file.
type section = map[string]any

func mib(n uint64) string { return fmt.Sprintf("%dMiB", n>>20) }

// options are a row's, read from the file that a user would write. JSON is YAML.
func (r *Row) options(s Shape, socket func(i int) string) (*config.Config, error) {
	file := section{}
	if r.Whole {
		file["card"] = section{"vram": mib(s.VRAM), "bar-map": r.Map}
		file["socket"] = socket(0)
	} else {
		file["card"] = section{"vram": mib(s.Card)}
		file["scheduler"] = section{"policy": cmp.Or(s.Policy, config.SchedulerAuto)}
		var gpus []section
		for i := range s.GPUs {
			gpus = append(gpus, section{
				"name": fmt.Sprint("gpu", i), "socket": socket(i), "vram": mib(s.VRAM),
				"bar-map": r.Map, "shadow": section{"sync": r.Sync, "scan": r.Scan},
			})
		}
		file["gpus"] = gpus
	}
	if r.TableRate != "" {
		file["limits"] = section{"table-rate": r.TableRate}
	}
	if r.Transport != "" {
		file["server"] = section{"transport": r.Transport}
	}
	text, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return nil, err
	}
	c := config.Default()
	if err := c.Parse("set-up "+r.Name, text); err != nil {
		return nil, err
	}
	return c, c.Check()
}
