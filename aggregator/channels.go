package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/fifo"
)

// The worker's operations on channels of the card, and what the card and the gate report of them.

// close ends a channel of the card and frees its resources when it has left the card. If it
// does not leave, the channel is stuck and the guest quarantined.
func (g *Guest) close(ch *fifo.Channel) {
	ch.Card().Disable()
	if !g.leaveCard(ch) {
		g.work.stuck = append(g.work.stuck, ch)
		g.agg.gate.GiveUp(ch)
		g.Quarantine("a channel does not leave the card")
		return
	}
	g.finishClose(ch)
}

// leaveCard waits, with a bound, until a disabled channel is on no PBDMA.
func (g *Guest) leaveCard(ch *fifo.Channel) bool {
	if g.work.cardTimedOut || g.quarantine.on.Load() && ch.Card().Running() { // waited for already
		left, _ := ch.Card().Stop(false)
		return left
	}
	g.work.credits = maxCredits
	left, inTime := ch.Card().Stop(true)
	if !inTime {
		g.noteCardTimeout()
	}
	return left
}

// finishClose frees the resources of a channel that is on no PBDMA.
func (g *Guest) finishClose(ch *fifo.Channel) {
	last := g.channels.Close(ch)
	g.mu.Lock()
	g.work.leaving = nil // its number may be reused soon
	g.mu.Unlock()
	if last && !g.invalidateCard() {
		g.work.waiting = append(g.work.waiting, ch) // until an invalidate completes
		return
	}
	g.channels.Release(ch)
}

// reap checks the stuck channels again.
func (g *Guest) reap() {
	left := g.work.stuck[:0]
	for _, ch := range g.work.stuck {
		if ch.Card().Running() {
			left = append(left, ch)
			continue
		}
		g.finishClose(ch)
	}
	g.work.stuck = left
	if len(g.work.waiting) > 0 {
		g.invalidateCard()
	}
}

// invalidateCard makes the card drop old translations, and then frees everything that went out
// of use.
func (g *Guest) invalidateCard() bool {
	if g.work.cardTimedOut {
		return false
	}
	if !g.shadows.InvalidateCard() {
		g.noteCardTimeout()
		return false
	}
	for _, ch := range g.work.waiting {
		g.channels.Release(ch)
	}
	g.work.waiting = nil
	return true
}

// noteCardTimeout counts a wait for the card that timed out. The round does not wait again
// where it can do without: others wait for its end.
func (g *Guest) noteCardTimeout() {
	g.stats.CardTimeout.Add(1)
	g.work.cardTimedOut = true
}

// runChannel lets a channel run if nothing stops it. Guest.mu is held.
func (g *Guest) runChannel(ch *fifo.Channel) {
	if e, refused := g.channels.Run(ch); refused {
		g.stop(ch, e)
	}
}

// resumeChannel is runChannel, after deferred invalidates of the channel's space. Guest.mu is held.
func (g *Guest) resumeChannel(ch *fifo.Channel) {
	if g.shadows.NeedsFlush(ch.Key()) {
		g.work.pending.schedule = true
		g.flushDeferred()
		return
	}
	g.runChannel(ch)
}

// stop stops a channel at an error, and reports that. Guest.mu is held.
func (g *Guest) stop(ch *fifo.Channel, e fifo.Error) {
	ch.Stop(e)
	g.events.fail(ch.ID, e)
	g.reported.Broadcast()
}

// Completed implements fifo.Guest. The driver of the guest then looks at its fences.
func (r rooms) Completed(engines uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if engines&^r.events.engines != 0 {
		r.stats.EngineEvents.Add(1)
	}
	r.events.engines |= engines
	r.reported.Broadcast()
}

// Failed implements fifo.Guest. An error of a channel that the guest has unbound is dropped.
func (r rooms) Failed(ch *fifo.Channel, e fifo.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.channels.Is(ch) {
		return
	}
	r.stop(ch, e)
	b := &r.quarantine.errors
	b.Spend(time.Now(), r.agg.opts.ErrorRate, 1)
	if b.Level() > r.agg.opts.ErrorBurst {
		r.quarantineLocked("it stops the card's engines too often")
	}
}

// Resume implements fifo.Guest.
func (r rooms) Resume(ch *fifo.Channel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels.Ready(ch.ID) == ch && r.channels.Table[ch.ID].Enabled {
		r.resumeChannel(ch)
	}
}

// Abort implements fifo.Guest.
func (r rooms) Abort(ch *fifo.Channel, engine int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels.Ready(ch.ID) != ch {
		return // its guest ends it
	}
	r.stats.Runaways.Add(1)
	ch.Card().Disable()
	if !ch.Ended() {
		r.stop(ch, ch.EngineFault(engine))
	}
	r.work.pending.preempt.Add(ch.ID)
	r.wake.Broadcast()
	r.agg.gate.Aborted(ch)
}
