package proto

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
