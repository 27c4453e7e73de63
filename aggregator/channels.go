package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/aggregator/report"
)

// What lets a channel run, what stops it, and what the card and the gate report of it.

// runChannel lets a channel run if nothing stops it. Guest.mu is held.
func (g *Guest) runChannel(ch *channels.Channel) {
	if f, refused := g.channels.Run(ch); refused {
		g.stop(ch, f)
	}
}

func (g *Guest) runChannels(list []*channels.Channel) {
	for _, ch := range list {
		g.runChannel(ch)
	}
}

// resumeChannel is runChannel, after deferred invalidates of the channel's space. Guest.mu is held.
func (g *Guest) resumeChannel(ch *channels.Channel) {
	if g.shadows.NeedsFlush(ch.Key()) {
		g.state.Pending.Follow = true
		g.flushDeferred()
		return
	}
	g.runChannel(ch)
}

// stop stops a channel at a fault, and reports that. Guest.mu is held.
func (g *Guest) stop(ch *channels.Channel, f card.Fault) {
	ch.Stop(f)
	g.reports.Failed(ch.ID, report.Error{Fault: f, Place: ch.Place})
}

// Quarantined implements channels.Guest.
func (r roomGuest) Quarantined() bool { return r.quarantined.Load() }

// Completed implements channels.Guest. The driver of the guest then looks at its fences.
func (r roomGuest) Completed(engines card.EngineSet) {
	defer fault.Contain(r, "an event of its channels")
	if r.reports.Completed(engines) {
		r.stats.EngineEvents.Add(1)
	}
}

// Failed implements channels.Guest. An error of a channel that the guest has unbound is dropped.
func (r roomGuest) Failed(ch *channels.Channel, f card.Fault) {
	defer fault.Contain(r, "an error of its channels")
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.channels.Is(ch) {
		return
	}
	r.stop(ch, f)
	b := &r.state.Errors
	b.Spend(time.Now(), r.agg.opts.ErrorRate, 1)
	if b.Level > r.agg.opts.ErrorBurst {
		r.quarantineLocked("it stops the card's engines too often")
	}
}

// listener notes a guest's accesses to memory that its client does not share before the guest hears of
// them. It does so on the goroutine of the guest's reports: the walk of its tables waits for the guest's
// memory, and whoever has the card's events for that.
type listener struct {
	report.Receiver
	guest *Guest
}

// Failed implements report.Receiver.
func (l listener) Failed(id uint32, e report.Error) {
	var ch *channels.Channel
	l.guest.locked(func() { ch = l.guest.channels.Channel(id) })
	if ch != nil && ch.Place == e.Place && e.Kind == card.Translation {
		ch.NoteUnmappedDMA(e.Fault)
	}
	l.Receiver.Failed(id, e)
}

// Abort implements channels.Guest.
func (r roomGuest) Abort(ch *channels.Channel, engine card.Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels.Ready(ch.ID) == ch { // else its guest ends it
		r.stats.Runaways.Add(1)
		ch.Disable()
		if !ch.Ended() {
			r.stop(ch, channels.EngineFault(engine))
		}
		r.state.Pending.Preempt.Add(ch.ID)
		r.wake.Broadcast()
	}
	r.agg.gate.Aborted(ch)
}
