package aggregator

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// GuestStats counts what a guest asked for and what came of it. Every counter
// may be read at any time.
type GuestStats struct {
	Doorbells    atomic.Uint64 // doorbells
	Binds        atomic.Uint64
	Unbinds      atomic.Uint64
	Runlists     atomic.Uint64
	Preempts     atomic.Uint64
	Invalidates  atomic.Uint64 // asked for
	Rebuilds     atomic.Uint64 // shadows built from all of the tables
	EngineEvents atomic.Uint64 // delivered
	MMUFaults    atomic.Uint64
	Runaways     atomic.Uint64 // requests that were ended because they ran for too long
	PBDMAErrors  atomic.Uint64
	EngineErrors atomic.Uint64 // methods that an engine refused
	WindowFaults atomic.Uint64 // BAR accesses that the guest's tables do not answer

	Scans            atomic.Uint64 // times that shadows were brought up to date
	LazyInvalidates  atomic.Uint64 // invalidates that were put off until the next work
	CardInvalidates  atomic.Uint64 // that the guest made the card do
	EntriesExamined  atomic.Uint64 // page-table entries looked at for shadows
	EntriesChanged   atomic.Uint64 // of these, what was found to have changed
	EntriesRewritten atomic.Uint64 // shadow entries written
	BytesCompared    atomic.Uint64 // bytes of tables compared with what they had been
	TableWork        atomic.Uint64 // all that shadows took, in bytes of tables read and looked at (see toll)
	ShadowTime       atomic.Int64  // ns spent on shadows; no count
	ThrottleTime     atomic.Int64  // ns for which shadows had to wait for their rate; no count
	LostEntries      atomic.Uint64 // page entries whose memory was taken away
	Unmaps           atomic.Uint64 // DMA mappings taken away
	UnmapTime        atomic.Int64  // ns until the card had let go of them; no count

	// What the guest named that is not its own, by rule.
	BadInstance     atomic.Uint64 // instance block outside its memory
	BadUSERD        atomic.Uint64 // USERD outside its memory
	BadWindow       atomic.Uint64 // PRAMIN outside its memory: accesses, and of a mapped one what points it there
	BadRunlist      atomic.Uint64 // runlist outside its memory
	BadPut          atomic.Uint64 // GP_PUT outside its ring, or back from where it was; seen with a scheduler
	OverQuota       atomic.Uint64 // channels beyond its share
	ForeignEntries  atomic.Uint64 // page entries that name nothing of the guest's
	ForeignTables   atomic.Uint64 // page tables outside its memory
	TablesOverQuota atomic.Uint64 // page tables beyond its share of memory and work
	Quarantines     atomic.Uint64 // times that the guest was put into safe mode
	CardTimeout     atomic.Uint64 // the card did not do it in time
	ScrubFailures   atomic.Uint64 // times that its memory could not be cleared

	Mapped homes.Stats // of what its clients may map
}

// A Count is one counter of a guest by its name.
type Count struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
	// Rule says that each count is a rule that the guest broke.
	Rule bool `json:"rule,omitempty"`
}

// Counts returns every counter, in the order of GuestStats. Times are none.
func (s *GuestStats) Counts() []Count {
	list := []Count{
		{"doorbells", s.Doorbells.Load(), false},
		{"binds", s.Binds.Load(), false},
		{"unbinds", s.Unbinds.Load(), false},
		{"runlists", s.Runlists.Load(), false},
		{"preempts", s.Preempts.Load(), false},
		{"invalidates", s.Invalidates.Load(), false},
		{"rebuilds", s.Rebuilds.Load(), false},
		{"engine_events", s.EngineEvents.Load(), false},
		{"mmu_faults", s.MMUFaults.Load(), false},
		{"runaways", s.Runaways.Load(), false},
		{"pbdma_errors", s.PBDMAErrors.Load(), false},
		{"engine_errors", s.EngineErrors.Load(), false},
		{"window_faults", s.WindowFaults.Load(), false},
		{"scans", s.Scans.Load(), false},
		{"lazy_invalidates", s.LazyInvalidates.Load(), false},
		{"card_invalidates", s.CardInvalidates.Load(), false},
		{"entries_examined", s.EntriesExamined.Load(), false},
		{"entries_changed", s.EntriesChanged.Load(), false},
		{"entries_rewritten", s.EntriesRewritten.Load(), false},
		{"bytes_compared", s.BytesCompared.Load(), false},
		{"table_work", s.TableWork.Load(), false},
		{"lost_entries", s.LostEntries.Load(), false},
		{"unmaps", s.Unmaps.Load(), false},
		{"bad_instance", s.BadInstance.Load(), true},
		{"bad_userd", s.BadUSERD.Load(), true},
		{"bad_window", s.BadWindow.Load(), true},
		{"bad_runlist", s.BadRunlist.Load(), true},
		{"bad_put", s.BadPut.Load(), true},
		{"over_quota", s.OverQuota.Load(), true},
		{"foreign_entries", s.ForeignEntries.Load(), true},
		{"foreign_tables", s.ForeignTables.Load(), true},
		{"tables_over_quota", s.TablesOverQuota.Load(), true},
		{"quarantines", s.Quarantines.Load(), false},
		{"card_timeouts", s.CardTimeout.Load(), false},
		{"scrub_failures", s.ScrubFailures.Load(), false},
	}
	for _, c := range s.Mapped.Counts() {
		list = append(list, Count{Name: c.Name, N: c.N})
	}
	return list
}
