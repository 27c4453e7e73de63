package gf100

import (
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Card is a virtual GPU's share of a card. No call waits: operations that take time are
// queued, and the methods that ask about them answer no until they are complete. Values are
// those of the guest's registers; the card checks every one.
type Card interface {
	// Time is the card's PTIMER in nanoseconds. It never goes back.
	Time() uint64
	// Quarantine stops the guest's channels, because the server failed in its work for it.
	Quarantine(reason string)
	// Reset ends all channels and scrubs the memory. It may wait, with a bound.
	Reset() error

	// Set acts on a register that says what is shown where, or whether channels may run.
	Set(Setting, uint32)
	// Read and Write access memory through a window. A false result is a fault to report.
	Read(w Window, off uint64, p []byte) (gf100.MMUFault, bool)
	Write(w Window, off uint64, p []byte) (gf100.MMUFault, bool)
	devmodel.Windows
	// Shown reports whether mapped windows agree with the registers.
	Shown() bool

	// Invalidate makes changed page tables effective.
	Invalidate(pdb, command uint32)
	// Runlist commits a list of channels that may run.
	Runlist(base, count uint32)
	// Channel does op to a channel.
	Channel(id uint8, op Op, v uint32)
	// Pending returns what is not complete, and Busy whether the card executes a channel.
	Pending() Pending
	Busy(id uint8) bool

	// EngineStatus returns NV_PFIFO_ENGINE_STATUS, and EndEngine ends the engine's channel with an
	// MMU fault.
	EngineStatus(engine int) uint32
	EndEngine(engine int)
}

// Setting is a register that Card.Set gets the value of.
type Setting uint8

// The settings.
const (
	BAR1Block  Setting = iota // NV_PBUS_BAR1_BLOCK
	BAR3Block                 // NV_PBUS_BAR2_BLOCK
	PRAMINBase                // NV_PBUS_BAR0_WINDOW
	PollBase                  // NV_PFIFO_USERD_BASE
	MayRun                    // 1: channels may run, by NV_PFIFO_ENABLE and NV_PFIFO_SCHED_DISABLE
	Settings
)

// Window is a window into the guest's memory.
type Window uint8

// The windows.
const (
	WindowBAR1 Window = iota
	WindowBAR3
	PRAMIN
)

// Op is what Card.Channel does.
type Op uint8

// The operations. Only the first two have a value, the register's.
const (
	Bind     Op = iota // NV_PCCSR_CHANNEL_INST
	Enable             // NV_PCCSR_CHANNEL
	Preempt            // asks it to leave the card
	Doorbell           // GP_PUT was written
	Refresh            // update USERD before the guest reads it
	Resume             // the driver has handled the error that held it
	Retry              // as Resume, but the method that a PBDMA refused is retried
	Ops
)

// Pending is what is not complete yet.
type Pending struct {
	Invalidate bool // the last one, or what mapped windows show of it
	Runlist    bool
	Preempt    bool
}

// noCard replaces the card until Connect: only its Time may be called.
type noCard struct{ Card }

func (noCard) Time() uint64 { return 0 }
