package aggregator

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// GuestStats counts a guest's requests and their results. Any goroutine may read them.
type GuestStats struct {
	Doorbells    atomic.Uint64 // doorbells
	Binds        atomic.Uint64
	Unbinds      atomic.Uint64
	Runlists     atomic.Uint64
	Preempts     atomic.Uint64
	Invalidates  atomic.Uint64 // requested by the guest
	Rebuilds     atomic.Uint64 // shadows built from all tables
	EngineEvents atomic.Uint64 // delivered
	MMUFaults    atomic.Uint64
	Runaways     atomic.Uint64 // requests ended because they ran too long
	PBDMAErrors  atomic.Uint64
	EngineErrors atomic.Uint64 // methods refused by an engine
	WindowFaults atomic.Uint64 // BAR accesses that fault in the guest's tables

	Scans            atomic.Uint64 // updates of shadows
	LazyInvalidates  atomic.Uint64 // deferred invalidates
	CardInvalidates  atomic.Uint64 // executed by the card for this guest
	EntriesExamined  atomic.Uint64 // page-table entries examined
	EntriesChanged   atomic.Uint64 // of these, found changed
	EntriesRewritten atomic.Uint64 // shadow entries written
	BytesCompared    atomic.Uint64 // bytes of tables compared with their last content
	TableWork        atomic.Uint64 // work on tables, in units of Options.TableRate
	ShadowTime       atomic.Int64  // ns spent on shadows; not in Counts
	ThrottleTime     atomic.Int64  // ns waited for the rate; not in Counts
	LostEntries      atomic.Uint64 // page entries whose memory was unmapped
	Unmaps           atomic.Uint64 // DMA mappings removed
	UnmapTime        atomic.Int64  // ns until the card no longer used them; not in Counts

	// Violations, by rule.
	BadInstance     atomic.Uint64 // instance block outside its memory
	BadUSERD        atomic.Uint64 // USERD outside its memory
	BadWindow       atomic.Uint64 // PRAMIN outside its memory: accesses, or window settings when mapped
	BadRunlist      atomic.Uint64 // runlist outside its memory
	BadPut          atomic.Uint64 // GP_PUT outside its ring or moved back; checked with a scheduler
	OverQuota       atomic.Uint64 // channels over its quota
	ForeignEntries  atomic.Uint64 // page entries that name memory of others or none
	ForeignTables   atomic.Uint64 // page tables outside its memory
	TablesOverQuota atomic.Uint64 // page tables over its quota of memory or work
	Quarantines     atomic.Uint64 // times that the guest was quarantined
	CardTimeout     atomic.Uint64 // card operations that timed out
	ScrubFailures   atomic.Uint64 // failed scrubs of its memory

	Mapped aperture.Stats // of what its clients may map
}

// A Count is one counter of a guest by its name.
type Count struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
	// Rule says that the counter counts violations of a rule.
	Rule bool `json:"rule,omitempty"`
}

// Counts returns every counter in the order of GuestStats, without times.
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
