package gf100

// MMUClient is a unit that faults are reported for: its slot at 002800 and the client
// numbers of its requests (bits 12:8 of 00280c).
type MMUClient struct {
	Slot        uint8
	Client      uint8
	WriteClient uint8 // BARs have another one for writes
}

// Slots and clients: envytools rnndb/fifo/gf100_pfifo.xml (VM_FAULT).
var (
	ClientGR   = MMUClient{Slot: 0x00, Client: 0x04, WriteClient: 0x04}
	ClientBAR1 = MMUClient{Slot: 0x04, Client: 0x07, WriteClient: 0x08}
	ClientBAR3 = MMUClient{Slot: 0x05, Client: 0x07, WriteClient: 0x08}
	ClientHost = MMUClient{Slot: 0x07, Client: 0x06, WriteClient: 0x06}
	ClientCE0  = MMUClient{Slot: 0x15, Client: 0x01, WriteClient: 0x01}
	ClientCE1  = MMUClient{Slot: 0x16, Client: 0x02, WriteClient: 0x02}
)

// EngineClients gives the client of each engine that executes here; that of the
// others is the graphics engine's.
var EngineClients = [Engines]MMUClient{EngineGR: ClientGR, EngineCE0: ClientCE0, EngineCE1: ClientCE1}

// Bits of NV_PFIFO_MMU_FAULT_INFO.
const (
	faultHub   = 1 << 6
	faultWrite = 1 << 7
)

// Fault is the report of a faulting access of client c at va, for the channel or window
// whose instance block is at inst.
func (c MMUClient) Fault(inst, va uint64, write bool, reason uint8) MMUFault {
	f := MMUFault{Unit: c.Slot, Inst: inst, VA: va, Info: uint32(reason&0xf) | faultHub | uint32(c.Client)<<8}
	if write {
		f.Info = uint32(reason&0xf) | faultHub | faultWrite | uint32(c.WriteClient)<<8
	}
	return f
}
