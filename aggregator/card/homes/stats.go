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

	// What is not exact, by its reason.
	System       atomic.Uint64 // places that were to show system memory
	Supervisor   atomic.Uint64 // or a page for the supervisor alone
	Outside      atomic.Uint64 // or memory that is not there
	Physical     atomic.Uint64 // times that a BAR was to show VRAM without tables
	Aliases      atomic.Uint64 // places of pages that live elsewhere, beyond the limit
	RunsRefused  atomic.Uint64 // pages that were to lie in more pieces than the limit
	PagesRefused atomic.Uint64 // pages beyond the limit
	MovesRefused atomic.Uint64 // pages that the card did not move
	PollArea     atomic.Uint64 // times that the poll area was put where windows do not expect it
	Overruled    atomic.Uint64 // bytes stored at a replica, and at the home by the guest or an engine, with nothing between that orders them
	Lost         atomic.Uint64 // replicas that changed too fast to be held equal
}

// A Count is one counter by its name.
type Count struct {
	Name string
	N    uint64
	// Why says what is not exact and for what reason, to whoever keeps the guest; empty
	// if the counter is of no such thing.
	Why string
}

// Counts returns every counter.
func (s *Stats) Counts() []Count {
	return []Count{
		{"map_scans", s.Scans.Load(), ""},
		{"map_entries_scanned", s.EntriesScanned.Load(), ""},
		{"map_entries_changed", s.EntriesChanged.Load(), ""},
		{"map_moves", s.Moves.Load(), ""},
		{"map_pages_moved", s.PagesMoved.Load(), ""},
		{"map_pages_deferred", s.Deferred.Load(), ""},
		{"map_move_ns", s.MoveTime.Load(), ""},
		{"map_orders", s.Orders.Load(), ""},
		{"map_gathers", s.Gathers.Load(), ""},
		{"map_reconciles", s.Reconciles.Load(), ""},
		{"map_bytes_merged", s.BytesMerged.Load(), ""},
		{"map_bytes_undone", s.Undone.Load(), ""},
		{"map_pages_poll_area", uint64(s.Homed[PollArea].Load()), ""},
		{"map_pages_bar3", uint64(s.Homed[BAR3].Load()), ""},
		{"map_pages_bar1", uint64(s.Homed[BAR1].Load()), ""},
		{"map_pages_pramin", uint64(s.Homed[PRAMIN].Load()), ""},
		{"map_runs", uint64(s.Runs.Load()), ""},
		{"map_runs_limit", uint64(s.MostRuns.Load()), ""},
		{"map_replicas", uint64(s.Replicas.Load()), ""},
		{"map_most_entered", uint64(s.MostEntered.Load()), ""},
		{"map_most_left", uint64(s.MostLeft.Load()), ""},
		{"map_inexact_system_memory", s.System.Load(), "places of it show system memory, which cannot be mapped"},
		{"map_inexact_supervisor", s.Supervisor.Load(), "places of it show pages for the supervisor alone, which cannot be mapped"},
		{"map_inexact_outside", s.Outside.Load(), "places of it show memory that the guest does not have"},
		// No reason: each client that comes begins with BARs without tables, and its driver ends
		// with them. It says nothing of what the driver does between.
		{"map_inexact_physical", s.Physical.Load(), ""},
		{"map_inexact_aliases", s.Aliases.Load(), "more places show pages that live elsewhere than are kept equal (limits.map-replicas)"},
		{"map_inexact_runs", s.RunsRefused.Load(), "its pages would lie in more pieces than the guest may have (limits.map-runs)"},
		{"map_inexact_pages", s.PagesRefused.Load(), "more pages are shown than may live there (limits.map-pages)"},
		{"map_inexact_not_moved", s.MovesRefused.Load(), "the card did not move pages"},
		{"map_inexact_poll_area", s.PollArea.Load(), "the poll area is where a window is mapped, and doorbells that are rung there do not trap"},
		{"map_inexact_overruled", s.Overruled.Load(), "the same bytes were stored in two places that show them, or in one and by an engine, with no more than a doorbell between"},
		{"map_inexact_too_fast", s.Lost.Load(), "what is shown in several places changes too fast to be held equal"},
	}
}
