package gf100

// MMUFault is a fault as the registers at 002800 describe it.
type MMUFault struct {
	Unit uint8  // slot: which client of the MMU
	Inst uint64 // instance block, in bytes
	VA   uint64
	Info uint32 // NV_PFIFO_MMU_FAULT_INFO
}

// PBDMAError is a method or header that a PBDMA could not pass on.
type PBDMAError struct {
	PBDMA   uint8
	Channel uint8
	Intr    uint32 // NV_PPBDMA_INTR_0
	Method  uint32 // NV_PPBDMA_METHOD0
	Data    uint32
}
