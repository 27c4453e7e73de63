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
	"github.com/umbra-gpu/umbra/aggregator/fault"
)

// Receiver receives the reports about a guest. Its methods run on the Reporter's goroutine with no
// lock held, and may call back into the guest.
type Receiver interface {
	// Completed reports non-stall events of engines.
	Completed(card.EngineSet)
	// Failed reports a fault at which the guest's channel id stopped. It is held until the guest's
	// Resume, unless it has ended.
	Failed(id uint32, e Error)
	// Refused reports that the guest may not have channel id: its structures are outside the guest's
	// memory, or it is over the quota.
	Refused(id uint32)
	// Done reports that control operations ended: registers that read "pending" may have changed.
	// notes are what the face has noted in its rounds.
	Done(notes Notes)
}

// Notes are bits with a meaning for the face that receives the reports.
type Notes uint8

// Error is a fault at which a channel stopped, and where the face has the channel's structures.
type Error struct {
	card.Fault
	Place uint64
}

// Undelivered is what is not yet delivered. It is flags, not a queue: a channel stops at its error, so
// it has one at a time.
type Undelivered struct {
	Engines card.EngineSet
	Done    bool
	Notes   Notes
	Refused []uint32 // channels that could not be opened
	Errors  []ChannelError
}

// ChannelError is an error of the guest's channel ID.
type ChannelError struct {
	ID uint32
	Error
}

// urgent reports whether there is something to deliver now.
func (s *Undelivered) urgent() bool { return s.Engines != 0 || s.Done || len(s.Errors) > 0 }

// forget drops what is to be said of a channel.
func (s *Undelivered) forget(id uint32) {
	s.Refused = slices.DeleteFunc(s.Refused, func(r uint32) bool { return r == id })
	s.Errors = slices.DeleteFunc(s.Errors, func(e ChannelError) bool { return e.ID == id })
}

// deliver delivers all but Done, for which a guest may wait even if this fails.
func (s *Undelivered) deliver(to Receiver) {
	if s.Engines != 0 {
		to.Completed(s.Engines)
	}
	for _, e := range s.Errors {
		to.Failed(e.ID, e.Error)
	}
	for _, id := range s.Refused {
		to.Refused(id)
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
		r.deliver(func() { now.deliver(r.to) })
		if now.Done {
			r.deliver(func() { r.to.Done(now.Notes) })
		}
		r.mu.Lock()
		r.delivering = false
		r.changed.Broadcast()
	}
}

func (r *Reporter) deliver(do func()) {
	defer fault.Contain(r.owner, "the delivery of its events")
	do()
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
func (r *Reporter) Failed(id uint32, e Error) {
	r.note(func(s *Undelivered) {
		s.forget(id)
		s.Errors = append(s.Errors, ChannelError{id, e})
	})
}

// Forget drops what is to be said of a channel that is bound again.
func (r *Reporter) Forget(id uint32) { r.note(func(s *Undelivered) { s.forget(id) }) }

// Refused notes a channel that could not be opened. It is reported with what comes next.
func (r *Reporter) Refused(id uint32) {
	r.note(func(s *Undelivered) {
		s.forget(id)
		s.Refused = append(s.Refused, id)
	})
}

// Done reports that control operations ended, and what the face noted of them.
func (r *Reporter) Done(notes Notes) {
	r.note(func(s *Undelivered) { s.Done, s.Notes = true, s.Notes|notes })
}
