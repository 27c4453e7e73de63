package proto

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
