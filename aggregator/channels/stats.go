package channels

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// Stats counts what happens to a guest's channels. Any goroutine may read them. The tag count or
// rule is the name of a counter, and help describes it to users.
type Stats struct {
	Binds        atomic.Uint64 `count:"binds" help:"Channels that the guest created and the card accepted."`
	Unbinds      atomic.Uint64 `count:"unbinds" help:"Channels that ended."`
	MMUFaults    atomic.Uint64 `count:"mmu_faults" help:"Accesses of channels to addresses without a page; the guest's log names the channel."`
	PBDMAErrors  atomic.Uint64 `count:"pbdma_errors" help:"Invalid pushbuffers or ring entries."`
	SWMethods    atomic.Uint64 `count:"software_methods" help:"Methods for the guest's driver itself, which handles them: harmless."`
	EngineErrors atomic.Uint64 `count:"engine_errors" help:"Methods that an engine refused, because the program uses a feature that this card does not have, and programs that it stopped."`
	CardTimeout  atomic.Uint64 `count:"card_timeouts" help:"Card operations for this guest that timed out; on a busy machine add processors, on an idle one report a bug."`
	BadInstance  atomic.Uint64 `rule:"bad_instance" help:"Channels whose instance block is outside the guest's memory."`
	BadUSERD     atomic.Uint64 `rule:"bad_userd" help:"Channels whose USERD page is outside the guest's memory."`
	BadChannel   atomic.Uint64 `rule:"bad_channel" help:"Channels with a number, an engine or a ring that the GPU does not have."`
	BadGSP       atomic.Uint64 `rule:"bad_gsp" help:"Boots of GSP, and queues of calls to it, that broke its protocol."`
	BadDoorbell  atomic.Uint64 `rule:"bad_doorbell" help:"Doorbells of channels that the guest does not have."`
	OverQuota    atomic.Uint64 `rule:"over_quota" help:"Channels that were refused, because the guest has too many, too little memory for their tables, or created too many in a second; raise channels, tables or limits.creations if it needs them."`

	Runlists   atomic.Uint64 `count:"runlists" help:"Runlists that the guest committed."`
	BadRunlist atomic.Uint64 `rule:"bad_runlist" help:"Runlists outside the guest's memory, which count as empty."`
	card.Faults

	Stopped FaultLog
}

// count counts a fault of a kind.
func (s *Stats) count(k card.Kind) {
	switch from := k.From(); {
	case k == card.SoftwareMethod:
		s.SWMethods.Add(1)
	case from == card.MMU:
		s.MMUFaults.Add(1)
	case from == card.Reader:
		s.PBDMAErrors.Add(1)
	case from == card.Unit:
		s.EngineErrors.Add(1)
	}
}
