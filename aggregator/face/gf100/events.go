package gf100

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/report"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
)

// Receiver is the virtual GPU, which shows events in its registers. Its methods run with no lock held.
type Receiver interface {
	// EngineEvent reports non-stall events; bit n is engine n.
	EngineEvent(engines uint32)
	MMUFault(id uint8, f chip.MMUFault)
	PBDMAError(chip.PBDMAError)
	// GraphTrap and CopyTrap report a method of channel id that an engine refused.
	GraphTrap(id uint8, t chip.GraphTrap)
	CopyTrap(id uint8, t chip.CopyTrap)
	BindError()
	RunlistError()
	// Done reports that control operations ended; runlist says that one was a runlist.
	Done(runlist bool)
}

// Completed implements report.Receiver.
func (f *Face) Completed(s card.EngineSet) { f.to.EngineEvent(structs.Bits(s)) }

// Failed implements report.Receiver.
func (f *Face) Failed(channel uint32, e report.Error) {
	id := uint8(channel)
	switch {
	case e.Kind.From() == card.MMU:
		f.to.MMUFault(id, structs.MMUFault(e.Fault, e.Place))
	case e.Kind.From() == card.Reader:
		f.to.PBDMAError(structs.PBDMAError(e.Fault, id))
	case e.Engine == card.Graphics:
		f.to.GraphTrap(id, structs.GraphTrap(e.Fault, e.Place))
	default:
		f.to.CopyTrap(id, structs.CopyTrap(e.Fault, e.Place))
	}
}

// Refused implements report.Receiver.
func (f *Face) Refused(uint32) { f.to.BindError() }

// Done implements report.Receiver.
func (f *Face) Done(notes report.Notes) {
	if notes&badRunlist != 0 {
		f.to.RunlistError()
	}
	f.to.Done(notes&tookRunlist != 0)
}
