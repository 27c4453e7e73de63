package proto

// Commands that do what the bench measures, of a node that nouveau has.
const (
	CmdContexts  = "contexts"  // ContextsArgs -> ContextsResult
	CmdTables    = "tables"    // TablesArgs -> TablesResult
	CmdBandwidth = "bandwidth" // BandwidthArgs -> BandwidthResult

	CmdDoorbellOpen  = "doorbell-open"  // no arguments -> no result: opens the channel that CmdDoorbell uses
	CmdDoorbell      = "doorbell"       // DoorbellArgs -> DoorbellResult
	CmdDoorbellClose = "doorbell-close" // no arguments -> no result
)

// ContextsArgs say how many clients there are at the same time. Each is an address
// space with a channel.
type ContextsArgs struct {
	Count int `json:"count,omitempty"` // 0: 1
}

// ContextsResult is in guest time: of all of them together.
type ContextsResult struct {
	CreateNS  int64 `json:"create_ns"` // until each has run one submission
	DestroyNS int64 `json:"destroy_ns"`
}

// TablesArgs say how many buffers are mapped into one address space. They are system
// memory, so that the driver writes an entry for each 4 KiB.
type TablesArgs struct {
	Buffers int    `json:"buffers"`
	Bytes   uint64 `json:"bytes"` // of each
}

// TablesResult is in guest time.
type TablesResult struct {
	MapNS   int64 `json:"map_ns"`
	UseNS   int64 `json:"use_ns"` // submissions that write through some of them, one at a time
	UnmapNS int64 `json:"unmap_ns"`
}

// BandwidthArgs say how the processor's way to VRAM is measured: blocks of so many
// bytes, in 31 rounds or so much time, whichever ends first.
type BandwidthArgs struct {
	Bytes int `json:"bytes,omitempty"`  // 0: 16 KiB
	BARMS int `json:"bar_ms,omitempty"` // for each window; 0: 500
}

// BandwidthResult is in guest time.
type BandwidthResult struct {
	Windows []WindowBandwidth `json:"windows"`
	Skipped []string          `json:"skipped,omitempty"` // windows that could not be measured, and why
}

// WindowBandwidth is that of one window, by loads and stores of 8 bytes, with that of
// the guest's own memory measured in turns with it. All are medians of the rounds.
type WindowBandwidth struct {
	Window      string  `json:"window"` // "bar1" or "bar3"
	ReadBps     float64 `json:"read_bps"`
	WriteBps    float64 `json:"write_bps"`
	RAMReadBps  float64 `json:"ram_read_bps"`
	RAMWriteBps float64 `json:"ram_write_bps"`
}

// DoorbellArgs say how often to ring the open channel's doorbell.
type DoorbellArgs struct {
	Count int `json:"count"` // submissions through the driver, each awaited in memory before the next
}

// DoorbellResult is in guest time.
type DoorbellResult struct {
	Count int `json:"count"`
	// A launch until the driver has returned.
	P50NS int64 `json:"p50_ns"`
	P99NS int64 `json:"p99_ns"`
	// A launch until its work is seen.
	WorkP50NS int64 `json:"work_p50_ns"`
	WorkP99NS int64 `json:"work_p99_ns"`
}

// CmdRegisters reads and writes registers of a card that a driver has: RegistersArgs ->
// RegistersResult. The driver does not know of it.
const CmdRegisters = "registers"

// RegistersArgs are accesses of 32 bits to BAR0, made one after the other.
type RegistersArgs struct {
	Accesses []RegisterAccess `json:"accesses"`
}

// RegisterAccess is a read, or a write of a value.
type RegisterAccess struct {
	Offset uint32  `json:"offset"`
	Write  *uint32 `json:"write,omitempty"`
}

// RegistersResult has what the reads returned.
type RegistersResult struct {
	Values []uint32 `json:"values"`
}

// CmdTraps times accesses to a register of a PCI function that no driver has: TrapsArgs ->
// TrapsResult.
const CmdTraps = "traps"

// TrapsArgs say which accesses, of 32 bits each, to BAR0.
type TrapsArgs struct {
	Address string `json:"address"` // of the function, as sysfs has it
	Offset  uint32 `json:"offset"`
	Write   bool   `json:"write,omitempty"`
	Count   int    `json:"count"`
	// Burst is after how many accesses the register is read, so that those that were
	// posted are done; 0: never, and the last of them are not waited for.
	Burst int `json:"burst,omitempty"`
}

// TrapsResult is in guest time.
type TrapsResult struct {
	NS    float64 `json:"ns"`    // an access, with its part of the read behind the burst
	Count int     `json:"count"` // accesses, a multiple of Burst
	Reads int     `json:"reads"` // besides those: one before, one behind each burst, one at the end
	Last  uint32  `json:"last"`  // what the register read at the end; accesses write 1 to Count
}

// Commands that keep the card busy with requests of one length, for as long as is asked for.
const (
	CmdThrottle       = "throttle"        // ThrottleArgs -> no result: starts, returns when it has its channel
	CmdThrottleTotals = "throttle-totals" // no arguments -> ThrottleTotals, so far
	CmdThrottleStop   = "throttle-stop"   // no arguments -> ThrottleTotals, when all that was submitted is done
)

// ThrottleArgs say what a process does with the card.
type ThrottleArgs struct {
	Seed     uint64 `json:"seed,omitempty"`
	BusyNS   int64  `json:"busy_ns"`            // length of a request
	Burst    int    `json:"burst"`              // requests submitted at once
	Ahead    int    `json:"ahead"`              // bursts that may be unfinished
	Requests int    `json:"requests,omitempty"` // 0: without an end
	// GrainNS is how long one launch keeps its engine busy on an idle card. 0 is unknown:
	// each request is then one launch.
	GrainNS int64 `json:"grain_ns,omitempty"`
}

// ThrottleTotals sums what the process did.
type ThrottleTotals struct {
	Submitted uint64 `json:"submitted"`
	Done      uint64 `json:"done"`
	Launches  uint64 `json:"launches"` // that they are
	Wrong     bool   `json:"wrong"`    // the data was not there at the end
	Error     string `json:"error,omitempty"`
}
