package proto

// Commands that do what the bench measures, of a node that nouveau has.
const (
	CmdContexts  = "contexts"  // ContextsArgs -> ContextsResult
	CmdTables    = "tables"    // TablesArgs -> TablesResult
	CmdBandwidth = "bandwidth" // BandwidthArgs -> BandwidthResult

	CmdDoorbellOpen  = "doorbell-open"  // NodeArgs -> no result: opens the channel that CmdDoorbell uses
	CmdDoorbell      = "doorbell"       // DoorbellArgs -> DoorbellResult
	CmdDoorbellClose = "doorbell-close" // no arguments -> no result
)

// ContextsArgs say how many clients there are at the same time. Each is an address
// space with a channel.
type ContextsArgs struct {
	Node  string `json:"node,omitempty"`
	Count int    `json:"count,omitempty"` // 0: 1
}

// ContextsResult is in guest time: of all of them together.
type ContextsResult struct {
	CreateNS  int64 `json:"create_ns"` // until each has run one submission
	DestroyNS int64 `json:"destroy_ns"`
}

// TablesArgs say how many buffers are mapped into one address space. They are system
// memory, so that the driver writes an entry for each 4 KiB.
type TablesArgs struct {
	Node    string `json:"node,omitempty"`
	Buffers int    `json:"buffers"`
	Bytes   uint64 `json:"bytes"` // of each
}

// TablesResult is in guest time.
type TablesResult struct {
	Entries int   `json:"entries"` // of 4 KiB, in all
	MapNS   int64 `json:"map_ns"`
	UseNS   int64 `json:"use_ns"` // submissions that write through some of them, one at a time
	UnmapNS int64 `json:"unmap_ns"`
}

// BandwidthArgs say how the processor's way to VRAM is measured: blocks of so many
// bytes, in so many rounds or so much time, whichever ends first.
type BandwidthArgs struct {
	Node   string `json:"node,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`  // 0: 16 KiB
	Rounds int    `json:"rounds,omitempty"` // 0: 31
	BARMS  int    `json:"bar_ms,omitempty"` // for each window; 0: 500
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
	Bytes       int     `json:"bytes"`  // of a block: less than asked for if the window shows less
	Rounds      int     `json:"rounds"`
	ReadBps     float64 `json:"read_bps"`
	WriteBps    float64 `json:"write_bps"`
	ReadToRAM   float64 `json:"read_to_ram"`  // by that of memory in the same round
	WriteToRAM  float64 `json:"write_to_ram"` // likewise
	RAMReadBps  float64 `json:"ram_read_bps"`
	RAMWriteBps float64 `json:"ram_write_bps"`
}

// Ways to ring a doorbell.
const (
	DoorbellStore  = "store"  // what GP_PUT holds is stored there again, through a mapping of BAR1: nothing is submitted
	DoorbellLaunch = "launch" // a submission through the driver, whose work is awaited in memory before the next
	DoorbellBatch  = "behind" // as many as there are push buffers, one behind the other, then all are awaited
)

// DoorbellArgs say how often to ring the open channel's doorbell, and how.
type DoorbellArgs struct {
	How   string `json:"how"`
	Count int    `json:"count"` // of doorbells, or of submissions; about, for some are made together
}

// DoorbellResult is in guest time.
type DoorbellResult struct {
	Count int     `json:"count"`
	NS    float64 `json:"ns"` // of one: the mean, and of stores the median of means of a few
	// A store, or a launch until the driver has returned.
	P50NS int64 `json:"p50_ns,omitempty"`
	P99NS int64 `json:"p99_ns,omitempty"`
	// A launch until its work is seen.
	WorkP50NS int64 `json:"work_p50_ns,omitempty"`
	WorkP99NS int64 `json:"work_p99_ns,omitempty"`
}
