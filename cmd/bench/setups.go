package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/config"
)

// setup is one way to serve a GPU, in the words of the configuration file.
type setup struct {
	name, about string
	whole       bool   // the whole card for one guest (pass-through)
	asked       bool   // measured only if --setups names it
	sync, scan  string // shadow.sync, shadow.scan
	barMap      string // bar-map
	tableRate   string // limits.table-rate; "" is the default
	compiler    string // card.compiler; "" is the default
	llvm        string // card.llvm, the same with every set-up
}

// passThrough is the baseline.
const passThrough = "pass-through"

// unlimited is the table rate of the set-ups that scan all tables. With the default rate, half of
// their time would be waiting for the limit.
const unlimited = "1TiB"

// setups are all of them.
var setups = []setup{
	{name: passThrough, whole: true, barMap: "none", about: "the whole card for one guest; every access is trapped"},
	{name: "pass-through+map", whole: true, barMap: "all", about: "the whole card for one guest, which maps BAR1, BAR3, PRAMIN and the ROM"},
	{name: "naive", sync: "flush", scan: "full", barMap: "none", tableRate: unlimited, about: "GPUvm's full virtualization: every access is trapped, each TLB invalidate scans all tables"},
	{name: "naive+lazy", asked: true, sync: "lazy", scan: "full", barMap: "none", tableRate: unlimited, about: "naive, but tables are scanned before the next submission that can use them"},
	{name: "naive+incremental", asked: true, sync: "flush", scan: "incremental", barMap: "none", tableRate: unlimited, about: "naive, but only changed entries are scanned"},
	{name: "naive+map", asked: true, sync: "flush", scan: "full", barMap: "all", tableRate: unlimited, about: "naive, but the guest maps BAR1, BAR3, PRAMIN and the ROM"},
	{name: "trapped", sync: "lazy", scan: "incremental", barMap: "none", about: "lazy and incremental, every access is trapped"},
	{name: "all", sync: "lazy", scan: "incremental", barMap: "all", about: "lazy and incremental, and the guest maps what it can; the default of umbra serve"},
	{name: "interpreted", asked: true, sync: "lazy", scan: "incremental", barMap: "all", compiler: config.CompilerOff, about: "all, but the server executes the guests' programs itself"},
}

// every selects all set-ups, also those that are measured only if they are named.
const every = "every"

// choose returns the named set-ups in the order of setups, or the default ones for no names.
func choose(names []string) []setup {
	return keep(setups, func(s setup) bool {
		if len(names) == 0 {
			return !s.asked
		}
		return slices.Contains(names, s.name) || slices.Contains(names, every)
	})
}

// mapped reports whether the guest maps anything.
func (s *setup) mapped() bool { return s.barMap != "none" }

// has reports whether a set-up has a counter. A full scan does not look for changes, and without
// mapping no page moves.
func (s *setup) has(count string) bool {
	switch count {
	case "entries_changed":
		return s.scan != "full"
	case "map_scans", "map_pages_moved":
		return s.mapped()
	}
	return true
}

// shape is the size of a server, the same with every set-up.
type shape struct {
	card   uint64 // bytes of VRAM of a shared card
	gpus   int
	vram   uint64 // of each virtual GPU, and of a card that one guest has
	policy string // of the scheduler; "" is the default. A whole card has no scheduler.
	weight int    // of the first GPU, as a multiple of that of the others; 0 is 1
}

// usualWeight is that of a GPU.
const usualWeight = 100

// common is the shape of most scenarios.
var common = shape{card: 512 << 20, gpus: 1, vram: 256 << 20}

// options are a set-up's, read from the file that a user would write.
func (s *setup) options(size shape, socket func(i int) string) (*config.Config, error) {
	var b strings.Builder
	if s.whole {
		fmt.Fprintf(&b, "card: {vram: %dMiB, bar-map: %s, %s}\nsocket: %q\n", size.vram>>20, s.barMap, s.programs(), socket(0))
	} else {
		fmt.Fprintf(&b, "card: {vram: %dMiB, %s}\nscheduler: {policy: %s}\ngpus:\n", size.card>>20, s.programs(), cmp.Or(size.policy, config.SchedulerAuto))
		for i := range size.gpus {
			weight := usualWeight
			if i == 0 {
				weight *= max(size.weight, 1)
			}
			fmt.Fprintf(&b, "  - {name: gpu%d, socket: %q, vram: %dMiB, weight: %d, bar-map: %s, shadow: {sync: %s, scan: %s}}\n",
				i, socket(i), size.vram>>20, weight, s.barMap, s.sync, s.scan)
		}
	}
	if s.tableRate != "" {
		fmt.Fprintf(&b, "limits: {table-rate: %s}\n", s.tableRate)
	}
	c := config.Default()
	if err := c.Parse("set-up "+s.name, []byte(b.String())); err != nil {
		return nil, err
	}
	return c, c.Check()
}

// programs say how the card runs those of guests.
func (s *setup) programs() string {
	return fmt.Sprintf("compiler: %q, llvm: %q", cmp.Or(s.compiler, config.CompilerAuto), s.llvm)
}
