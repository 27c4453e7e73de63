// Package gh100 is a virtual GH100 as one guest sees it: a PCI function, BAR0, the windows on memory, and
// GSP (package gsp), which the guest's driver asks for everything else.
//
// Every row of package mmio/gh100 has a policy. Nothing of a guest reaches the [Card] but typed values:
// what the rows of memory, translation and the doorbells say, and what GSP asks. A register that no row
// declares is plain storage without effect.
//
// # Locks and goroutines
//
// The lock is that of devmodel.Function; GSP runs under it, too. The package starts no goroutines.
package gh100

import (
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
)

// Card is a virtual GPU's share of a card. No call waits: operations that take time are queued, and
// Settled says when they are complete.
type Card interface {
	Board
	Memory
	Channels
}

// Board is the part of the share that is not memory or channels.
type Board interface {
	// Time is the card's clock in nanoseconds. It never goes back.
	Time() uint64
	// BrokeRule counts what the guest's driver does against the protocols.
	BrokeRule(Rule)
	// Reset ends all channels. It scrubs the memory, unless keep says that the guest sleeps. It may wait,
	// with a bound.
	Reset(keep bool) error
}

// Rule is one that drivers have to keep.
type Rule uint8

// The rules.
const (
	RuleBoot     Rule = iota // GSP can use the arguments of a boot
	RuleQueues               // GSP can use the queues
	RuleDoorbell             // a doorbell is of a channel that there is
	Rules
)

// Memory is the guest's memory and its windows.
type Memory interface {
	gsp.Memory // by bus address
	// ReadVRAM and WriteVRAM access the guest's VRAM for PRAMIN. What is not there reads as ones.
	ReadVRAM(addr uint64, p []byte)
	WriteVRAM(addr uint64, p []byte)
	// PointPRAMIN says where in VRAM PRAMIN lies.
	PointPRAMIN(addr uint64)
	// ReadBAR and WriteBAR access memory through the tables of a window, card.BAR1 or card.BAR3. An access
	// that they do not map does nothing, is counted, and reads as ones.
	ReadBAR(bar int, off uint64, p []byte)
	WriteBAR(bar int, off uint64, p []byte)
	// SetBAR2 sets the first entry of the second window's root; zero is none.
	SetBAR2(entry uint64)
	devmodel.Windows
	// Invalidate makes changed tables effective: those of the directory at root, or with all, all. It is
	// complete when Invalidated says so.
	Invalidate(root uint64, in gsp.Target, all bool)
	Invalidated() bool
}

// Channels are the guest's address spaces and channels, see gsp.Host.
type Channels interface {
	NewSpace(id uint64)
	SetDirectory(id, root uint64, in gsp.Target)
	DropSpace(id uint64)
	OpenChannel(gsp.Channel) error
	CloseChannel(id uint32)
	Schedule(id uint32, on bool)
	// Settled reports whether all that was asked for is complete: closed channels use no memory, and
	// channels without Schedule do not run.
	Settled() bool
	// Doorbell submits what the guest's channel has in its ring.
	Doorbell(id uint32)
}

// Events receives what the card reports. Its methods run with no lock of the card held, and not from
// within a call of Card, except Reset.
type Events interface {
	// Completed reports that the engine, an index in gsp.Engines, has completed what a channel announced.
	Completed(engine int)
	// Failed reports that a channel was stopped for good, with a line for the log of the guest's driver.
	Failed(Failure)
	// Done reports that Settled or Invalidated may have changed.
	Done()
}

// Failure says why a channel was stopped.
type Failure struct {
	Channel uint32 // as the guest counts
	Kind    uint32 // gsp.ErrorMMU and the others
	Addr    uint64 // of a fault
	Access  uint32 // the type of the fault, as the chip numbers them
	Text    string // for people
}
