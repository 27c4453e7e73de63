// Package report delivers what happens to one guest's channels to its virtual GPU.
//
// A [Reporter] has one goroutine, from New to Close, so that a guest that takes reports slowly does
// not delay the card, and no report waits while its worker waits for the card. Reporter.mu guards the
// reports; it is a leaf and not held during a delivery.
package report

import (
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Receiver receives the reports about a guest. Its methods run on the Reporter's goroutine with no
// lock held, and may call back into the guest.
type Receiver interface {
	// EngineEvent reports non-stall events; bit n is engine n.
	EngineEvent(engines uint32)
	MMUFault(id uint8, f gf100.MMUFault)
	PBDMAError(gf100.PBDMAError)
	// GraphTrap and CopyTrap report a method of channel id that an engine refused. The
	// channel is held until the guest's Resume.
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

// Error is a fault at which a channel stopped, and the guest's instance block of the channel.
type Error struct {
	card.Fault
	Inst uint64
}

func (e *Error) deliver(id uint8, to Receiver) {
	switch {
	case e.Kind.From() == card.MMU:
		to.MMUFault(id, structs.MMUFault(e.Fault, e.Inst))
	case e.Kind.From() == card.Reader:
		to.PBDMAError(structs.PBDMAError(e.Fault, id))
	case structs.Number(e.Engine) == gf100.EngineGR:
		to.GraphTrap(id, structs.GraphTrap(e.Fault, e.Inst))
	default:
		to.CopyTrap(id, structs.CopyTrap(e.Fault, e.Inst))
	}
}

// Undelivered is what is not yet delivered. It is flags, not a queue: a channel stops at its error, so
// it has one at a time.
type Undelivered struct {
	Engines  card.EngineSet
	Done     bool
	Runlist  bool
	Unbound  bool // a channel could not be bound
	Unlisted bool // a runlist could not be read
	Errors   []ChannelError
}

// ChannelError is an error of the guest's channel ID.
type ChannelError struct {
	ID uint8
	Error
}

// urgent reports whether there is something to deliver now.
func (s *Undelivered) urgent() bool { return s.Engines != 0 || s.Done || len(s.Errors) > 0 }

// forget drops the error of a channel.
func (s *Undelivered) forget(id uint8) {
	s.Errors = slices.DeleteFunc(s.Errors, func(e ChannelError) bool { return e.ID == id })
}

func (s *Undelivered) deliver(to Receiver) {
	if s.Engines != 0 {
		to.EngineEvent(structs.Bits(s.Engines))
	}
	for _, e := range s.Errors {
		e.deliver(e.ID, to)
	}
	if s.Unbound {
		to.BindError()
	}
	if s.Unlisted {
		to.RunlistError()
	}
	if s.Done {
		to.Done(s.Runlist)
	}
}

// Reporter holds reports until they are delivered. Any goroutine may use it.
type Reporter struct {
	to    Receiver
	owner fault.Owner

	mu         sync.Mutex // guards what follows
	changed    *sync.Cond
	state      Undelivered
	delivering bool
	closed     bool
	ended      bool
}

// New returns a Reporter that has nothing to deliver. If a delivery fails, it quarantines owner.
func New(to Receiver, owner fault.Owner) *Reporter {
	r := &Reporter{to: to, owner: owner}
	r.changed = sync.NewCond(&r.mu)
	go r.run()
	return r
}

func (r *Reporter) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for !r.state.urgent() && !r.closed {
			r.changed.Wait()
		}
		if r.closed {
			r.ended = true
			r.changed.Broadcast()
			return
		}
		now := r.state
		r.state, r.delivering = Undelivered{}, true
		r.mu.Unlock()
		r.deliver(&now)
		r.mu.Lock()
		r.delivering = false
		r.changed.Broadcast()
	}
}

func (r *Reporter) deliver(s *Undelivered) {
	defer fault.Contain(r.owner, "the delivery of its events")
	s.deliver(r.to)
}

// Close ends the Reporter after the delivery under way.
func (r *Reporter) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for !r.ended {
		r.changed.Broadcast()
		r.changed.Wait()
	}
}

// Drop waits for the delivery under way, and drops the rest.
func (r *Reporter) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.delivering {
		r.changed.Wait()
	}
	r.state = Undelivered{}
}

// Idle reports whether nothing is being delivered, and nothing waits for it.
func (r *Reporter) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.delivering && !r.state.urgent()
}

// note changes what is to be delivered.
func (r *Reporter) note(change func(*Undelivered)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
	r.changed.Broadcast()
}

// Completed reports non-stall events of engines, and whether any of them is new.
func (r *Reporter) Completed(engines card.EngineSet) (added bool) {
	r.note(func(s *Undelivered) {
		added = engines&^s.Engines != 0
		s.Engines |= engines
	})
	return added
}

// Failed reports a channel's error in place of an earlier one.
func (r *Reporter) Failed(id uint8, e Error) {
	r.note(func(s *Undelivered) {
		s.forget(id)
		s.Errors = append(s.Errors, ChannelError{id, e})
	})
}

// Forget drops the error of a channel that is bound again.
func (r *Reporter) Forget(id uint8) { r.note(func(s *Undelivered) { s.forget(id) }) }

// Unbound notes a channel that could not be bound. It is reported with what comes next.
func (r *Reporter) Unbound() { r.note(func(s *Undelivered) { s.Unbound = true }) }

// Unlisted notes a runlist that could not be read. It is reported with what comes next.
func (r *Reporter) Unlisted() { r.note(func(s *Undelivered) { s.Unlisted = true }) }

// Done reports that control operations ended, and whether one of them was a runlist.
func (r *Reporter) Done(runlist bool) {
	r.note(func(s *Undelivered) { s.Done, s.Runlist = true, s.Runlist || runlist })
}
