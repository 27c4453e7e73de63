package proto

// The commands of the guest program that drives nouveau. Each verifies its own
// data, and is OK only if all of it held; the result is there either way, with
// the figures. Times are in nanoseconds of the guest's clock.
const (
	CmdMark       = "mark"       // MarkArgs -> MarkResult
	CmdBind       = "bind"       // BindArgs -> BindResult
	CmdDRI        = "dri"        // no arguments -> DRIResult
	CmdPCI        = "pci"        // PCIArgs -> PCIResult
	CmdInterrupts = "interrupts" // InterruptsArgs -> InterruptsResult

	CmdM2MF     = "m2mf"      // CopyArgs -> CopyResult: copies each way between VRAM and the guest's memory
	CmdCE       = "ce"        // CopyArgs -> CopyResult: likewise, on both engines
	CmdExec     = "exec"      // CopyArgs -> CopyResult: by VM_BIND and EXEC
	CmdFences   = "fences"    // FencesArgs -> FencesResult
	CmdBOMoves  = "bo-moves"  // BOMovesArgs -> BOMovesResult
	CmdFault    = "fault"     // OffenceArgs -> OffenceResult
	CmdLoad     = "load"      // LoadArgs -> no result: starts, returns after verified copies; EventLoad follows
	CmdLoadStop = "load-stop" // no arguments -> LoadTotals
)

// ModprobeResult is what modprobe replies with.
type ModprobeResult struct {
	Loaded []LoadedModule `json:"loaded"` // in order; those already there are left out
}

// LoadedModule is one module and how long init_module took: for the last one, its
// linking and the probe of the devices it found.
type LoadedModule struct {
	Name   string `json:"name"`
	InitNS int64  `json:"init_ns"`
}

// MarkArgs may write a line to the kernel log.
type MarkArgs struct {
	Text string `json:"text,omitempty"`
}

// MarkResult is a place in the kernel log: KmsgArgs.AfterSeq for what comes after it.
type MarkResult struct {
	Seq uint64 `json:"seq"`
}

// BindArgs takes the card from nouveau and gives it back, through sysfs.
type BindArgs struct {
	Action string `json:"action,omitempty" values:"cycle|bind|unbind"` // empty: cycle
	Count  int    `json:"count,omitempty"`                             // cycles; 0: one
}

// BindResult has one entry a cycle.
type BindResult struct {
	Cycles []BindCycle `json:"cycles"`
}

// BindCycle is one unbind and one bind; the bind is the probe.
type BindCycle struct {
	Nodes []string `json:"nodes"` // in /dev/dri afterwards
}

// DRIResult lists the nodes of /dev/dri and the driver of each.
type DRIResult struct {
	Nodes []DRINode `json:"nodes"`
}

// DRINode is one DRM node.
type DRINode struct {
	Path   string `json:"path"`
	Driver string `json:"driver,omitempty"` // "" when the node cannot be opened
	Error  string `json:"error,omitempty"`
}

// PCIArgs selects functions; zero values select all.
type PCIArgs struct {
	Vendor uint16 `json:"vendor,omitempty"`
}

// PCIResult lists PCI functions.
type PCIResult struct {
	Functions []PCIFunction `json:"functions"`
}

// PCIFunction is one function as sysfs shows it.
type PCIFunction struct {
	Address      string   `json:"address"`
	Vendor       uint16   `json:"vendor"`
	Device       uint16   `json:"device"`
	Class        uint32   `json:"class"` // 24 bits
	Revision     uint8    `json:"revision"`
	Driver       string   `json:"driver,omitempty"`
	BARs         []PCIBAR `json:"bars"`
	Capabilities []int    `json:"capabilities"` // their IDs
	IRQMode      string   `json:"irq_mode"`     // "msi", "msix", "intx", "none"
	IRQ          int      `json:"irq,omitempty"`
}

// PCIBAR is one base address register in use.
type PCIBAR struct {
	Index int    `json:"index"`
	Size  uint64 `json:"size"`
}

// InterruptsArgs selects lines of /proc/interrupts by their action's name.
type InterruptsArgs struct {
	Name string `json:"name,omitempty"` // empty: nouveau (and nvkm, as it is called from 6.2 on)
}

// InterruptsResult sums the lines selected.
type InterruptsResult struct {
	Lines []InterruptLine `json:"lines"`
	Count uint64          `json:"count"`
}

// InterruptLine is one line of /proc/interrupts.
type InterruptLine struct {
	IRQ   string `json:"irq"`
	Chip  string `json:"chip"` // "PCI-MSI-0000:00:02.0 0-edge nvkm" and the like
	Count uint64 `json:"count"`
}

// CopyArgs are copies to do and verify.
type CopyArgs struct {
	Seed  uint64 `json:"seed,omitempty"`
	Bytes uint32 `json:"bytes,omitempty"` // of each copy, which is done 20 times; 0: once each of several sizes
}

// CopyResult has one entry a case.
type CopyResult struct {
	Cases  []CopyOutcome `json:"cases"`
	Bytes  uint64        `json:"bytes"` // moved by GPU and verified
	Failed int           `json:"failed"`
}

// CopyOutcome is the fate of one case.
type CopyOutcome struct {
	Name  string `json:"name"` // begins with the engine
	OK    bool   `json:"ok"`
	Bytes uint64 `json:"bytes"`
	NS    int64  `json:"ns"` // from the submission to the end of the wait
	Error string `json:"error,omitempty"`
}

// FencesArgs is a number of small submissions.
type FencesArgs struct {
	Count int `json:"count,omitempty"` // waits; 0: 500
	Batch int `json:"batch,omitempty"` // submissions per wait; 0: 1
	// SubmitOnly leaves the copies across channels out: verified through the GPU's memory,
	// they make a hundred times more traps than the submissions.
	SubmitOnly bool `json:"submit_only,omitempty"`
}

// FencesResult has the latencies from submission to the end of the wait.
type FencesResult struct {
	Pushes      int   `json:"pushes"`
	Waits       int   `json:"waits"`
	Wrong       int   `json:"wrong"` // values that were not there when the wait ended
	MedianNS    int64 `json:"median_ns"`
	P99NS       int64 `json:"p99_ns"`
	CrossCopies int   `json:"cross_copies"` // copies chained from channel to channel with no CPU wait between
	CrossWrong  int   `json:"cross_wrong"`
}

// BOMovesArgs moves one buffer between VRAM and GART.
type BOMovesArgs struct {
	Seed  uint64 `json:"seed,omitempty"`
	Bytes uint64 `json:"bytes,omitempty"` // 0: 1 MiB
	Moves int    `json:"moves,omitempty"` // 0: 8
}

// BOMovesResult tells where the buffer was after each move.
type BOMovesResult struct {
	Domains []string `json:"domains"`
	Bytes   uint64   `json:"bytes"` // verified
	Wrong   int      `json:"wrong"`
}

// OffenceArgs is one thing that a channel must not do.
type OffenceArgs struct {
	// What is an MMU fault, from host-method on an invalid command. Empty: m2mf-read.
	What string `json:"what,omitempty" values:"m2mf-read|m2mf-write|ce-read|ce-write|semaphore|host-method|engine-method|engine-class|empty-subchannel|bad-header|garbage"`
	Seed uint64 `json:"seed,omitempty"`
}

// OffenceResult tells what became of the channel. The command is OK when that is
// what this kernel does, another client lost nothing meanwhile, and a new channel works.
type OffenceResult struct {
	Channel    int          `json:"channel"`
	Expected   bool         `json:"expected"` // this kernel kills the channel
	Killed     bool         `json:"killed"`
	ReportedBy string       `json:"reported_by,omitempty"` // the interrupt of the report: "mmu", "pbdma", "pgraph"
	Log        []KmsgRecord `json:"log"`                   // what the kernel said meanwhile, level warning or worse
	Background LoadTotals   `json:"background"`
	FreshWorks bool         `json:"fresh_works"` // a new client copies rightly afterwards
}

// LoadArgs starts copies that go on until load-stop.
type LoadArgs struct {
	Seed       uint64 `json:"seed,omitempty"`
	Clients    int    `json:"clients,omitempty"`     // 0: 1
	Bytes      uint32 `json:"bytes,omitempty"`       // a copy; 0: 256 KiB
	KeepBytes  uint32 `json:"keep_bytes,omitempty"`  // that each client keeps in VRAM and checks in each round
	EveryMS    int    `json:"every_ms,omitempty"`    // from round to round at least
	ProgressMS int    `json:"progress_ms,omitempty"` // 0: 1000
}

// EventLoad reports progress of a load; its data is a LoadTotals.
const EventLoad = "load"

// LoadTotals sums the work of clients that copy and verify.
type LoadTotals struct {
	Copies uint64 `json:"copies"`
	Bytes  uint64 `json:"bytes"`
	Wrong  uint64 `json:"wrong"`
	Checks uint64 `json:"checks,omitempty"` // of kept data
	Lost   uint64 `json:"lost,omitempty"`   // words of it that were wrong
	Error  string `json:"error,omitempty"`  // the first one
}
