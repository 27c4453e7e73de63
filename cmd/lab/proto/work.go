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
