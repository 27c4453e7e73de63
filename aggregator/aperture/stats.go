package aperture

import (
	"reflect"
	"strings"
	"sync/atomic"
)

// Stats counts the operations of a Mapper. Every counter may be read at any time. The tag count is the
// name of a counter, and help describes it to users.
type Stats struct {
	Scans          atomic.Uint64 `count:"map_scans" help:"Scans of a window's page tables after a change by the guest."`
	EntriesScanned atomic.Uint64 `count:"map_entries_scanned" help:"Page-table entries that these scans read."`
	EntriesChanged atomic.Uint64 `count:"map_entries_changed" help:"Scanned entries that had changed."`
	Moves          atomic.Uint64 `count:"map_moves" help:"Runs of adjacent pages that moved into a window, out of one, or between two."`
	PagesMoved     atomic.Uint64 `count:"map_pages_moved" help:"Pages in these runs."`
	Deferred       atomic.Uint64 `count:"map_pages_deferred" help:"Pages beyond what one trap may move, which a later trap moved."`
	MoveTime       atomic.Uint64 `count:"map_move_ns" help:"Nanoseconds spent on moving pages, while the engines were quiesced."`
	Barriers       atomic.Uint64 `count:"map_barriers" help:"Times that all aliases were made equal, for a doorbell, an interrupt or a register access that orders memory."`
	BytesMerged    atomic.Uint64 `count:"map_bytes_merged" help:"Changed bytes that were copied from one alias to the others."`

	Resident [Kinds]atomic.Int64 // pages that each window backs
	Runs     atomic.Int64        `count:"map_runs" help:"Gauge. Pieces in which these pages lie; each takes two mappings of the process."`
	MostRuns atomic.Int64        `count:"map_runs_limit" help:"Gauge. Pieces that there may be: limits.map-runs, or fewer if many guests share vm.max_map_count."`
	Aliases  atomic.Int64        `count:"map_aliases" help:"Gauge. Pages of windows that show memory which another page shows; each costs every doorbell a comparison, so a smaller bar-map makes doorbells faster."`

	// What is not exact, by the window in which it is not. The tag what says what the pages of a window
	// do, or what happened some times; then is a key of consequences.
	System         ByWindow `count:"map_inexact_system_memory" unit:"pages" what:"show system memory, which cannot be mapped" then:"zeros"`
	Supervisor     ByWindow `count:"map_inexact_supervisor" unit:"pages" what:"show memory for the supervisor alone, which cannot be mapped" then:"zeros"`
	ReadOnly       ByWindow `count:"map_inexact_read_only" unit:"pages" what:"show read-only memory, which is mapped writable" then:"writable"`
	Outside        ByWindow `count:"map_inexact_outside" unit:"pages" what:"show memory that the guest does not have" then:"zeros"`
	Physical       ByWindow `count:"map_inexact_physical" unit:"times" what:"a mapped BAR had no page tables, without which it cannot show VRAM" then:"begin"`
	AliasesRefused ByWindow `count:"map_inexact_aliases" unit:"pages" what:"show memory that another page shows, beyond the limit of such pages (limits.map-aliases)" then:"full"`
	RunsRefused    ByWindow `count:"map_inexact_runs" unit:"pages" what:"would need more pieces than the guest may have (limits.map-runs)" then:"full"`
	MovesRefused   ByWindow `count:"map_inexact_not_moved" unit:"pages" what:"could not be moved by the card" then:"not moved"`
	PollArea       ByWindow `count:"map_inexact_poll_area" unit:"times" what:"the guest put the poll area into a mapped window, where doorbells do not trap" then:"ignored"`
	TooFast        ByWindow `count:"map_inexact_too_fast" unit:"times" what:"memory that several pages show changed too fast to be kept equal" then:"fast"`
}

// ByWindow is a counter with a part for each window.
type ByWindow [Kinds]atomic.Uint64

// Add counts in a window.
func (b *ByWindow) Add(k Kind, n uint64) { b[k].Add(n) }

// Load is the sum of all windows.
func (b *ByWindow) Load() (n uint64) {
	for k := range b {
		n += b[k].Load()
	}
	return n
}

// A Count is one counter by its name.
type Count struct {
	Name string
	N    uint64
	Help string // for users
	// In is how many of them are in each window; empty if the counter has no such parts.
	In   []uint64
	Unit string // of In: pages or times
	// Why is the reason why something is not exact, and Then the consequence for the guest;
	// empty if everything that the counter counts is exact.
	Why, Then string
	// Usual marks a counter that every client raises when it attaches: neither the log nor
	// a report names it.
	Usual bool
}

// consequences are those of inexact slots for the guest.
var consequences = map[string]string{
	"begin":     "the guest reads zeros there, and its stores are lost, until its driver has made tables; each client begins so, and stock drivers store nothing there: for one that does, leave the window out of bar-map",
	"zeros":     "the guest reads zeros there, and its stores are lost; if the guest needs such pages, leave the window out of bar-map: trapped accesses are exact, and slower",
	"full":      "such a page may read as zeros, and lose what the guest stores there; raise the limit, or leave the window out of bar-map: trapped accesses are exact, and slower",
	"not moved": "such a page may read as zeros, and lose what the guest stores there; leave the window out of bar-map: trapped accesses are exact, and slower",
	"writable":  "what the guest stores there changes the page, where a trapped store would fault; if the guest needs that, leave the window out of bar-map",
	"ignored":   "a doorbell there has no effect; leave bar1 out of bar-map",
	"fast":      "the guest may see old bytes there, and concurrent stores there may be lost; leave the window out of bar-map",
}

// Counts returns every counter.
func (s *Stats) Counts() (list []Count) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		switch f := v.Field(i).Addr().Interface().(type) {
		case *atomic.Uint64:
			list = append(list, Count{Name: tag.Get("count"), N: f.Load(), Help: tag.Get("help")})
		case *atomic.Int64:
			list = append(list, Count{Name: tag.Get("count"), N: uint64(f.Load()), Help: tag.Get("help")})
		case *[Kinds]atomic.Int64:
			for k := range f {
				name := kindNames[k]
				list = append(list, Count{Name: "map_pages_" + name, N: uint64(f[k].Load()), Help: "Gauge. Pages that are in " + strings.ToUpper(name) + "'s window."})
			}
		case *ByWindow:
			list = append(list, f.count(tag))
		}
	}
	return list
}

// count is a counter of what is not exact.
func (b *ByWindow) count(tag reflect.StructTag) Count {
	what, then := tag.Get("what"), consequences[tag.Get("then")]
	c := Count{Name: tag.Get("count"), Unit: tag.Get("unit"), Why: what, Then: then, Help: "Times that " + what, Usual: tag.Get("then") == "begin"}
	if c.Unit == "pages" {
		c.Why, c.Help = "pages of it "+what, "Pages of mapped windows that "+what
	}
	c.Help += ". " + strings.ToUpper(then[:1]) + then[1:] + "."
	for k := range b {
		c.In = append(c.In, b[k].Load())
		c.N += c.In[k]
	}
	return c
}
