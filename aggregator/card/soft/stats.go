package soft

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Stats counts the operations of the card since New. Every counter may be read at any time.
type Stats struct {
	Doorbells        atomic.Uint64 // writes of GP_PUT
	GPEntries        atomic.Uint64 // GPFIFO entries fetched
	Words            atomic.Uint64 // pushbuffer words consumed
	Methods          atomic.Uint64 // methods handed to hosts and engines
	Releases         atomic.Uint64 // host semaphore releases
	Acquires         atomic.Uint64 // host semaphore acquires that succeeded
	AcquireWaits     atomic.Uint64 // acquires that had to be retried
	NonStall         atomic.Uint64 // non-stall interrupt methods
	Interrupts       atomic.Uint64 // rising edges of the interrupt line
	MMUFaults        atomic.Uint64
	PBDMAErrors      atomic.Uint64 // interrupts of the PBDMAs, software methods included
	EngineErrors     atomic.Uint64 // methods an engine refused
	TLBMisses        atomic.Uint64
	Invalidates      atomic.Uint64 // writes of NV_PFB_PRI_MMU_INVALIDATE, MEM_OP invalidates, and spaces that InvalidateSpaces names
	TLBFlushes       atomic.Uint64 // address spaces that dropped their translations for one
	Runlists         atomic.Uint64 // runlist commits
	UnboundDoorbells atomic.Uint64 // doorbells of channels that are not bound
	BARFaults        atomic.Uint64 // accesses through BAR1 or BAR3 that no page answers
	PagesMoved       atomic.Uint64 // whose backing changed
	LongestStep      atomic.Uint64 // ns, by the card's clock

	card.Faults
	Engine engine.Stats
	Owners [gf100.Owners]engine.Work // by gf100.InstOwner
}
