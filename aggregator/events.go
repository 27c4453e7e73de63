package aggregator

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/fifo"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Events receives the card's reports about a guest. Its methods run on a goroutine of the
// guest's own with no lock of this package held, and may call back into the Guest. A slow
// receiver does not delay other guests.
type Events interface {
	// EngineEvent reports non-stall events; bit n is engine n.
	EngineEvent(engines uint32)
	MMUFault(id uint8, f gf100.MMUFault)
	PBDMAError(gf100.PBDMAError)
	// GraphTrap and CopyTrap report a method of channel id that an engine refused. The
	// channel is held until Guest.Resume.
	GraphTrap(id uint8, t gf100.GraphTrap)
	CopyTrap(id uint8, t gf100.CopyTrap)
	// BindError reports a channel that could not be bound: its structures are outside the
	// guest's memory, or it is over the quota.
	BindError()
	// RunlistError reports a runlist outside the guest's memory.
	RunlistError()
	// Done reports that control operations ended: registers that read "pending" may have
	// changed. runlist is set if one of them was a runlist.
	Done(runlist bool)
}

// events are those not yet delivered to the guest. They are flags, not a queue: a
// channel stops at its error, so it has one at a time.
type events struct {
	engines       uint32
	done, runlist bool
	unbound       bool // a channel could not be bound
	unlisted      bool // a runlist could not be read
	errors        []channelError
	delivering    bool
}

// channelError is an error of the guest's channel id.
type channelError struct {
	id uint8
	fifo.Error
}

func (e *channelError) deliver(ev Events) {
	switch {
	case e.MMU != nil:
		ev.MMUFault(e.id, *e.MMU)
	case e.PBDMA != nil:
		ev.PBDMAError(*e.PBDMA)
	case e.Graph != nil:
		ev.GraphTrap(e.id, *e.Graph)
	case e.Copy != nil:
		ev.CopyTrap(e.id, *e.Copy)
	}
}

func (n *events) empty() bool {
	return n.engines == 0 && !n.done && !n.unbound && !n.unlisted && len(n.errors) == 0
}

// fail records a channel's error in place of an earlier one.
func (n *events) fail(id uint8, e fifo.Error) {
	n.forget(id)
	n.errors = append(n.errors, channelError{id, e})
}

// forget drops the error of a channel that is bound again.
func (n *events) forget(id uint8) {
	n.errors = slices.DeleteFunc(n.errors, func(e channelError) bool { return e.id == id })
}

func (n *events) deliver(ev Events) {
	if n.engines != 0 {
		ev.EngineEvent(n.engines)
	}
	for i := range n.errors {
		n.errors[i].deliver(ev)
	}
	if n.unbound {
		ev.BindError()
	}
	if n.unlisted {
		ev.RunlistError()
	}
	if n.done {
		ev.Done(n.runlist)
	}
}

// deliverEvents is the guest's second goroutine.
func (g *Guest) deliverEvents() {
	defer g.working.Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		for g.events.empty() && !g.work.ended {
			g.reported.Wait()
		}
		if g.work.ended {
			return
		}
		n := g.events
		g.events = events{delivering: true}
		g.mu.Unlock()
		n.deliver(g.ev)
		g.mu.Lock()
		g.events.delivering = false
		g.reported.Broadcast()
	}
}
