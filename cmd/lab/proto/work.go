package proto

// The commands of a channel whose doorbell is rung again and again. The program waits by reading memory,
// so nothing but the doorbell reaches the server.
const (
	CmdDoorbellOpen  = "doorbell-open"  // no arguments -> no result: opens the channel that CmdDoorbell uses
	CmdDoorbell      = "doorbell"       // DoorbellArgs -> no result
	CmdDoorbellClose = "doorbell-close" // no arguments -> no result
)

// DoorbellArgs say how often to ring the open channel's doorbell.
type DoorbellArgs struct {
	Count int `json:"count"` // submissions through the driver, each awaited in memory before the next
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

// CmdTraps accesses a register of a PCI function that no driver has: TrapsArgs -> TrapsResult.
const CmdTraps = "traps"

// TrapsArgs say which accesses, of 32 bits each, to BAR0.
type TrapsArgs struct {
	Address string `json:"address"` // of the function, as sysfs has it
	Offset  uint32 `json:"offset"`
	Write   bool   `json:"write,omitempty"` // 1 to Count
	Count   int    `json:"count"`
}

// TrapsResult is what the register read at the end.
type TrapsResult struct {
	Last uint32 `json:"last"`
}
