package aggregator

import (
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/trace"
)

// tracing is what a recording of a guest needs.
type tracing struct {
	trace.Point

	mu    sync.Mutex // held while the guest's memory is read for a recording
	ended bool       // the memory is no longer the guest's
}

// SetTrace records what happens to the guest's channels, until it is called with nil.
func (g *Guest) SetTrace(r *trace.Recorder) { g.tracing.Set(r) }

// Submitted appends to list what a submission has in the guest's memory now: the entries of its ring, and with words those
// of its pushbuffers.
func (g *Guest) Submitted(list []trace.Event, e trace.Event, words bool) []trace.Event {
	g.traced(e.Channel, func(ch *channels.Channel) { list = ch.Submitted(list, e, words) })
	return list
}

// ReadCode copies what a channel finds at an address of its own now. It returns false where there is none.
func (g *Guest) ReadCode(channel uint16, va uint64, p []byte) (ok bool) {
	g.traced(channel, func(ch *channels.Channel) { ok = ch.Read(va, p) })
	return ok
}

// traced calls f with a channel, while the guest has its memory.
func (g *Guest) traced(channel uint16, f func(*channels.Channel)) {
	t := &g.tracing
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || channel >= channels.Max {
		return
	}
	var ch *channels.Channel
	g.locked(func() { ch = g.channels.Channel(uint32(channel)) })
	if ch != nil {
		f(ch)
	}
}

// endTrace waits until no recording reads the guest's memory any more.
func (t *tracing) endTrace() {
	t.Set(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// Trace implements gate.Guest.
func (r roomGuest) Trace() *trace.Recorder { return r.tracing.Trace() }
