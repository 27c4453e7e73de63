package aggregator

import "sync/atomic"

// GuestStats counts what a guest asked for and what came of it. Every counter
// may be read at any time.
type GuestStats struct {
	Bells        atomic.Uint64 // doorbells
	Binds        atomic.Uint64
	Unbinds      atomic.Uint64
	Runlists     atomic.Uint64
	Preempts     atomic.Uint64
	Invalidates  atomic.Uint64 // asked for
	Rebuilds     atomic.Uint64 // shadows built
	EngineEvents atomic.Uint64 // delivered
	MMUFaults    atomic.Uint64
	PBDMAErrors  atomic.Uint64
	WindowFaults atomic.Uint64 // BAR accesses that the guest's tables do not answer

	// What the guest named that is not its own, by rule.
	BadInstance atomic.Uint64 // instance block outside its memory
	BadUSERD    atomic.Uint64 // USERD outside its memory
	BadWindow   atomic.Uint64 // PRAMIN outside its memory
	BadRunlist  atomic.Uint64 // runlist outside its memory
	OverQuota   atomic.Uint64 // channels beyond its share
	CardTimeout atomic.Uint64 // the card did not do it in time
}

// A Count is one counter of a guest by its name.
type Count struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
	// Rule says that each count is a rule that the guest broke.
	Rule bool `json:"rule,omitempty"`
}

// Counts returns every counter, in the order of GuestStats.
func (s *GuestStats) Counts() []Count {
	return []Count{
		{"bells", s.Bells.Load(), false},
		{"binds", s.Binds.Load(), false},
		{"unbinds", s.Unbinds.Load(), false},
		{"runlists", s.Runlists.Load(), false},
		{"preempts", s.Preempts.Load(), false},
		{"invalidates", s.Invalidates.Load(), false},
		{"rebuilds", s.Rebuilds.Load(), false},
		{"engine_events", s.EngineEvents.Load(), false},
		{"mmu_faults", s.MMUFaults.Load(), false},
		{"pbdma_errors", s.PBDMAErrors.Load(), false},
		{"window_faults", s.WindowFaults.Load(), false},
		{"bad_instance", s.BadInstance.Load(), true},
		{"bad_userd", s.BadUSERD.Load(), true},
		{"bad_window", s.BadWindow.Load(), true},
		{"bad_runlist", s.BadRunlist.Load(), true},
		{"over_quota", s.OverQuota.Load(), true},
		{"card_timeouts", s.CardTimeout.Load(), false},
	}
}
