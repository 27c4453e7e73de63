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
