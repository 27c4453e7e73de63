package aperture

import (
	"strings"
	"sync/atomic"
)

// Stats counts the operations of a Set. Every counter may be read at any time.
type Stats struct {
	Scans          atomic.Uint64 // of a window's tables
	EntriesScanned atomic.Uint64 // entries compared
	EntriesChanged atomic.Uint64 // and found to be different
	Moves          atomic.Uint64 // of pieces that lie together
	PagesMoved     atomic.Uint64
	Deferred       atomic.Uint64 // pages that were left to later register accesses
	MoveTime       atomic.Uint64 // ns, including the wait for the engines
	Barriers       atomic.Uint64 // flushes of all aliases because memory is ordered
	BytesMerged    atomic.Uint64

	// As of now.
	Resident [Kinds]atomic.Int64 // pages that each window backs
	Runs     atomic.Int64        // pieces in which they lie
	MostRuns atomic.Int64        // that there may be
	Aliases  atomic.Int64

	// What is not exact, by its reason, and by the window in which it is not.
	System         ByWindow // slots that were to show system memory
	Supervisor     ByWindow // or a page for the supervisor alone
	ReadOnly       ByWindow // slots that show a read-only page, and can be written
	Outside        ByWindow // slots that were to show memory that is not there
	Physical       ByWindow // times that a BAR was to show VRAM without tables
	AliasesRefused ByWindow // slots beyond the limit
	RunsRefused    ByWindow // pages that were to lie in more runs than the limit
	MovesRefused   ByWindow // pages that the card did not move: to this window, or out of it
	PollArea       ByWindow // times that the poll area was put into a mapped window
	TooFast        ByWindow // words of aliases that changed too fast to be merged
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

// The consequences of inexact slots for the guest.
const (
	thenBegin    = "the guest reads zeros there, and its stores are lost, until its driver has made tables; each client begins so, and stock drivers store nothing there: for one that does, leave the window out of bar-map"
	thenZeros    = "the guest reads zeros there, and its stores are lost; if the guest needs such pages, leave the window out of bar-map: trapped accesses are exact, and slower"
	thenFull     = "such a page may read as zeros, and lose what the guest stores there; raise the limit, or leave the window out of bar-map: trapped accesses are exact, and slower"
	thenNotMoved = "such a page may read as zeros, and lose what the guest stores there; leave the window out of bar-map: trapped accesses are exact, and slower"
	thenWritable = "what the guest stores there changes the page, where a trapped store would fault; if the guest needs that, leave the window out of bar-map"
	thenIgnored  = "a doorbell there has no effect; leave bar1 out of bar-map"
	thenFast     = "the guest may see old bytes there, and concurrent stores there may be lost; leave the window out of bar-map"
)

// Counts returns every counter.
func (s *Stats) Counts() []Count {
	return []Count{
		{Name: "map_scans", N: s.Scans.Load(), Help: "Scans of a window's page tables after a change by the guest."},
		{Name: "map_entries_scanned", N: s.EntriesScanned.Load(), Help: "Page-table entries that these scans read."},
		{Name: "map_entries_changed", N: s.EntriesChanged.Load(), Help: "Scanned entries that had changed."},
		{Name: "map_moves", N: s.Moves.Load(), Help: "Runs of adjacent pages that moved into a window, out of one, or between two."},
		{Name: "map_pages_moved", N: s.PagesMoved.Load(), Help: "Pages in these runs."},
		{Name: "map_pages_deferred", N: s.Deferred.Load(), Help: "Pages beyond what one trap may move, which a later trap moved."},
		{Name: "map_move_ns", N: s.MoveTime.Load(), Help: "Nanoseconds spent on moving pages, while the engines were quiesced."},
		{Name: "map_barriers", N: s.Barriers.Load(), Help: "Times that all aliases were made equal, for a doorbell, an interrupt or a register access that orders memory."},
		{Name: "map_bytes_merged", N: s.BytesMerged.Load(), Help: "Changed bytes that were copied from one alias to the others."},
		{Name: "map_pages_bar3", N: uint64(s.Resident[BAR3].Load()), Help: "Gauge. Pages that are in BAR3's window."},
		{Name: "map_pages_bar1", N: uint64(s.Resident[BAR1].Load()), Help: "Gauge. Pages that are in BAR1's window."},
		{Name: "map_pages_pramin", N: uint64(s.Resident[PRAMIN].Load()), Help: "Gauge. Pages that are in PRAMIN's window."},
		{Name: "map_runs", N: uint64(s.Runs.Load()), Help: "Gauge. Pieces in which these pages lie; each takes two mappings of the process."},
		{Name: "map_runs_limit", N: uint64(s.MostRuns.Load()), Help: "Gauge. Pieces that there may be: limits.map-runs, or fewer if many guests share vm.max_map_count."},
		{Name: "map_aliases", N: uint64(s.Aliases.Load()), Help: "Gauge. Pages of windows that show memory which another page shows; each costs every doorbell a comparison, so a smaller bar-map makes doorbells faster."},
		inexact("map_inexact_system_memory", pages, &s.System, "show system memory, which cannot be mapped", thenZeros),
		inexact("map_inexact_supervisor", pages, &s.Supervisor, "show memory for the supervisor alone, which cannot be mapped", thenZeros),
		inexact("map_inexact_read_only", pages, &s.ReadOnly, "show read-only memory, which is mapped writable", thenWritable),
		inexact("map_inexact_outside", pages, &s.Outside, "show memory that the guest does not have", thenZeros),
		usual(inexact("map_inexact_physical", times, &s.Physical, "a mapped BAR had no page tables, without which it cannot show VRAM", thenBegin)),
		inexact("map_inexact_aliases", pages, &s.AliasesRefused, "show memory that another page shows, beyond the limit of such pages (limits.map-aliases)", thenFull),
		inexact("map_inexact_runs", pages, &s.RunsRefused, "would need more pieces than the guest may have (limits.map-runs)", thenFull),
		inexact("map_inexact_not_moved", pages, &s.MovesRefused, "could not be moved by the card", thenNotMoved),
		inexact("map_inexact_poll_area", times, &s.PollArea, "the guest put the poll area into a mapped window, where doorbells do not trap", thenIgnored),
		inexact("map_inexact_too_fast", times, &s.TooFast, "memory that several pages show changed too fast to be kept equal", thenFast),
	}
}

// The units of what is not exact.
const (
	pages = "pages"
	times = "times"
)

// inexact is a counter of what is not exact, by window. What says what the pages of a window do,
// or what happened some times; then is the consequence with the remedy.
func inexact(name, unit string, b *ByWindow, what, then string) Count {
	c := Count{Name: name, Unit: unit, In: make([]uint64, Kinds), Why: what, Then: then, Help: "Times that " + what}
	if unit == pages {
		c.Why, c.Help = "pages of it "+what, "Pages of mapped windows that "+what
	}
	c.Help += ". " + strings.ToUpper(then[:1]) + then[1:] + "."
	for k := range b {
		c.In[k] = b[k].Load()
		c.N += c.In[k]
	}
	return c
}

// usual marks a counter that each client makes rise.
func usual(c Count) Count {
	c.Usual = true
	return c
}
