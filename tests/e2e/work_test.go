package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// work is what the card counted while something went on.
type work struct {
	bytes, launches map[uint16]uint64 // by class
	counts          map[string]uint64
}

// Names of counts.
const (
	doorbells    = "doorbells"
	releases     = "releases"
	nonStall     = "non-stall events"
	mmuFaults    = "MMU faults"
	pbdmaErrors  = "PBDMA errors"
	engineErrors = "engine errors"
)

func (b *fixture) counters() work {
	s := b.Card.Stats()
	w := work{bytes: map[uint16]uint64{}, launches: map[uint16]uint64{}, counts: map[string]uint64{
		doorbells: s.Doorbells.Load(), releases: s.Releases.Load(),
		nonStall:  s.NonStall.Load(),
		mmuFaults: s.MMUFaults.Load(), pbdmaErrors: s.PBDMAErrors.Load(), engineErrors: s.EngineErrors.Load(),
	}}
	for _, c := range engine.Classes() {
		w.bytes[c.ID] = s.Engine.Class(c.ID).Bytes.Load()
		w.launches[c.ID] = s.Engine.Class(c.ID).Launches.Load()
	}
	return w
}

// during returns what the card counted while f ran.
func (b *fixture) during(f func()) work {
	before := b.counters()
	f()
	w := b.counters()
	for id := range w.bytes {
		w.bytes[id] -= before.bytes[id]
		w.launches[id] -= before.launches[id]
	}
	for name := range w.counts {
		w.counts[name] -= before.counts[name]
	}
	return w
}

// requireMoved fails unless a class moved at least so many bytes.
func (w work) requireMoved(t *testing.T, class uint16, bytes uint64) {
	t.Helper()
	require.NotZero(t, bytes)
	require.GreaterOrEqual(t, w.bytes[class], bytes, "bytes moved by class %04x", class)
	require.NotZero(t, w.launches[class])
}

// requireInterrupts fails unless the guest takes interrupts for what the card announced.
func (b *fixture) requireInterrupts(k kernel) {
	b.t.Helper()
	guest := func() uint64 {
		var r proto.InterruptsResult
		b.call(proto.CmdInterrupts, nil, &r)
		require.NotEmpty(b.t, r.Lines)
		return r.Count
	}
	before := guest()
	// These take so long that the kernel sleeps until they are done.
	w := b.during(func() { b.call(k.copies, proto.CopyArgs{Bytes: 1 << 20}, nil) })
	received := guest() - before
	require.NotZero(b.t, received)
	require.NotZero(b.t, w.counts[nonStall])
}
