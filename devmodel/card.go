package devmodel

import (
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Card is a virtual GPU's share of a card. No call waits: operations that take time are
// queued, and the methods that ask about them answer no until they are complete. Values are
// the guest's own; the card checks every one.
type Card interface {
	// VRAM is the size of the memory that the guest sees, in bytes.
	VRAM() uint64

	// Time is the card's PTIMER in nanoseconds. It never goes back.
	Time() uint64

	// The windows into that memory. A false result is a fault to report.
	SetBlock(bar int, v uint32)
	ReadBAR(bar int, off uint64, p []byte) (gf100.MMUFault, bool)
	WriteBAR(bar int, off uint64, p []byte) (gf100.MMUFault, bool)
	ReadPRAMIN(window, off uint32, p []byte)
	WritePRAMIN(window, off uint32, p []byte)

	// The guest's machine may map these windows. MemoryBarrier is called before accesses of
	// rows that are barriers, and before interrupts: afterwards the card finds all bytes
	// that were written without a trap. Access is called before any access of a register.
	SetPRAMIN(window uint32)
	SetPollArea(v uint32)
	MemoryBarrier()
	Access()

	// Address translation.
	Invalidate(pdb, command uint32)
	Invalidated() bool
	// Shown reports whether mapped windows agree with the registers.
	Shown() bool

	// Channels, by the guest's numbers.
	Bind(id uint8, inst uint32)
	Enable(id uint8, on bool)
	ChannelBusy(id uint8) bool
	Runlist(base, count uint32)
	RunlistPending() bool
	Preempt(id uint8)
	PreemptPending() bool
	Schedule(on bool)  // whether channels may run at all
	Doorbell(id uint8) // GP_PUT was written
	Refresh(id uint8)  // update USERD before the guest reads it
	Resume(id uint8)   // the driver has handled the error that held the channel
	Retry(id uint8)    // as Resume, but the method that a PBDMA refused is retried
	EngineStatus(engine int) uint32
	TriggerFault(engine int) // ends the engine's channel with an MMU fault

	// Quarantine stops the guest's channels, because the server failed in its work for it.
	Quarantine(reason string)

	// Reset ends all channels and scrubs the memory. It may wait, with a bound.
	Reset() error
}

// Line is the state of a virtual GPU's interrupt.
type Line = mmio.Line

// Host receives a virtual GPU's interrupt. Interrupt must not block and must not call back.
type Host interface {
	Interrupt(Line)
}

// noCard replaces the card until Connect: only its Time may be called.
type noCard struct{ Card }

func (noCard) Time() uint64 { return 0 }
