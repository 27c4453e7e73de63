package homes

import "sync/atomic"

// Stats counts what a Set did. Every counter may be read at any time.
type Stats struct {
	Scans          atomic.Uint64 // of a window's tables
	EntriesScanned atomic.Uint64 // entries compared
	EntriesChanged atomic.Uint64 // and found to be others
	Moves          atomic.Uint64 // of pieces that lie together
	PagesMoved     atomic.Uint64
	Deferred       atomic.Uint64 // pages that were left to later traps
	MoveTime       atomic.Uint64 // ns, with the engines' standing still
	Orders         atomic.Uint64 // times that all replicas were made equal for an access
	Gathers        atomic.Uint64 // times that what was written to replicas was brought to their homes for a doorbell
	Reconciles     atomic.Uint64 // replicas held against their homes, or, for a doorbell, against what they were
	BytesMerged    atomic.Uint64
	Undone         atomic.Uint64 // bytes that the guest wrote to read-only places

	// How it stands now.
	Homed    [Kinds]atomic.Int64 // pages that live in each window
	Runs     atomic.Int64        // pieces in which they lie
	MostRuns atomic.Int64        // that there may be
	Replicas atomic.Int64

	// The most that one trap has done.
	MostEntered atomic.Int64 // pages that it brought to windows, or from one to another
	MostLeft    atomic.Int64 // pages that it sent home

	// What is not exact, by its reason, and by the window in which it is not.
	System       ByWindow // places that were to show system memory
	Supervisor   ByWindow // or a page for the supervisor alone
	Outside      ByWindow // or memory that is not there
	Physical     ByWindow // times that a BAR was to show VRAM without tables
	Aliases      ByWindow // places of pages that live elsewhere, beyond the limit
	RunsRefused  ByWindow // pages that were to lie in more pieces than the limit
	MovesRefused ByWindow // pages that the card did not move: to this window, or home from it
	PollArea     ByWindow // times that the poll area was put where windows do not expect it
	Overruled    ByWindow // bytes stored at a replica, and at the home by the guest or an engine, with nothing between that orders them
	Lost         ByWindow // replicas that changed too fast to be held equal
}

// ByWindow is a counter with a part for each window.
type ByWindow [Kinds]atomic.Uint64

// Add counts in a window.
func (b *ByWindow) Add(k Kind, n uint64) { b[k].Add(n) }

// Load is how many there are in all windows.
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
	// In is how many of them are in each window; empty if the counter is of no such thing.
	In []uint64
	// Why says what is not exact and for what reason, to whoever keeps the guest, and Then what
	// that means for the guest; empty if the counter is of nothing that he need know.
	Why, Then string
	// Usual tells that each client makes it rise when it comes: neither the log nor a report
	// names it as something that is not exact.
	Usual bool
}

// What it means for the guest that something is not exact.
const (
	thenBegin = "the guest reads zeros there, and what it stores there is lost, until its driver has made tables; each client begins so, and stock drivers store nothing there: for one that does, leave the window out of bar-map"
	thenZeros = "the guest reads zeros there, and what it stores there is lost; an access that is trapped is exact, and slower: leave the window out of bar-map if the guest needs such places"
	thenFull  = "such a place may read as zeros, and lose what the guest stores there; an access that is trapped is exact, and slower: leave the window out of bar-map"
	thenLate  = "nothing is lost: they are looked for, and heard a little later"
	thenHome  = "what was stored in this window is lost, and what the other place or the engine stored stays"
	thenFast  = "the guest may see old bytes there, and what it stores there meanwhile may be lost"
)

// Counts returns every counter.
func (s *Stats) Counts() []Count {
	return []Count{
		{Name: "map_scans", N: s.Scans.Load()},
		{Name: "map_entries_scanned", N: s.EntriesScanned.Load()},
		{Name: "map_entries_changed", N: s.EntriesChanged.Load()},
		{Name: "map_moves", N: s.Moves.Load()},
		{Name: "map_pages_moved", N: s.PagesMoved.Load()},
		{Name: "map_pages_deferred", N: s.Deferred.Load()},
		{Name: "map_move_ns", N: s.MoveTime.Load()},
		{Name: "map_orders", N: s.Orders.Load()},
		{Name: "map_gathers", N: s.Gathers.Load()},
		{Name: "map_reconciles", N: s.Reconciles.Load()},
		{Name: "map_bytes_merged", N: s.BytesMerged.Load()},
		{Name: "map_bytes_undone", N: s.Undone.Load()},
		{Name: "map_pages_poll_area", N: uint64(s.Homed[PollArea].Load())},
		{Name: "map_pages_bar3", N: uint64(s.Homed[BAR3].Load())},
		{Name: "map_pages_bar1", N: uint64(s.Homed[BAR1].Load())},
		{Name: "map_pages_pramin", N: uint64(s.Homed[PRAMIN].Load())},
		{Name: "map_runs", N: uint64(s.Runs.Load())},
		{Name: "map_runs_limit", N: uint64(s.MostRuns.Load())},
		{Name: "map_replicas", N: uint64(s.Replicas.Load())},
		{Name: "map_most_entered", N: uint64(s.MostEntered.Load())},
		{Name: "map_most_left", N: uint64(s.MostLeft.Load())},
		inexact("map_inexact_system_memory", &s.System, "places of it show system memory, which cannot be mapped", thenZeros),
		inexact("map_inexact_supervisor", &s.Supervisor, "places of it show pages for the supervisor alone, which cannot be mapped", thenZeros),
		inexact("map_inexact_outside", &s.Outside, "places of it show memory that the guest does not have", thenZeros),
		usual(inexact("map_inexact_physical", &s.Physical, "a BAR shows VRAM without tables, which is not mapped", thenBegin)),
		inexact("map_inexact_aliases", &s.Aliases, "more places show pages that live elsewhere than are kept equal (limits.map-aliases)", thenFull),
		inexact("map_inexact_runs", &s.RunsRefused, "its pages would lie in more pieces than the guest may have (limits.map-runs)", thenFull),
		inexact("map_inexact_not_moved", &s.MovesRefused, "the card did not move pages", thenFull),
		inexact("map_inexact_poll_area", &s.PollArea, "the poll area is where a window is mapped, and doorbells that are rung there do not trap", thenLate),
		inexact("map_inexact_overruled", &s.Overruled, "the same bytes were stored in two places that show them, or in one and by an engine, with no more than a doorbell between", thenHome),
		inexact("map_inexact_too_fast", &s.Lost, "what is shown in several places changes too fast to be held equal", thenFast),
	}
}

// inexact is a counter of what is not exact, and by window.
func inexact(name string, b *ByWindow, why, then string) Count {
	c := Count{Name: name, In: make([]uint64, Kinds), Why: why, Then: then}
	for k := range b {
		c.In[k] = b[k].Load()
		c.N += c.In[k]
	}
	return c
}

// usual is a counter that says nothing of one guest, since each client makes it rise.
func usual(c Count) Count {
	c.Usual = true
	return c
}
