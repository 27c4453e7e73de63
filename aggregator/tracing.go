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
	t := &g.tracing
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || e.Channel >= channels.Max {
		return list
	}
	var ch *channels.Channel
	g.locked(func() { ch = g.channels.Channel(uint32(e.Channel)) })
	if ch == nil {
		return list
	}
	return ch.Submitted(list, e, words)
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
