package soft_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// The card's report on a channel: ended entries, the time of the engine that worked for
// them and of no other, and whether the channel can continue by itself.
func TestUse(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	var calls atomic.Int64
	r.card.OnUse(func() { calls.Add(1) })
	defer r.card.OnUse(nil)
	idle := func() bool { return r.card.Use(1).Idle }
	require.True(t, r.card.Use(7).Barred, "there is no such channel")

	begin := time.Now()
	for range 3 {
		c.submit(cat(incr(2, 0, classM2MF), copyM2MF(vaData, vaRAM, 1<<16))...)
	}
	r.eventually("idle", idle)
	u := r.card.Use(1)
	require.Equal(t, uint64(3), u.Ended)
	require.False(t, u.Barred || u.Running || u.Underway)
	require.Positive(t, u.Busy[gf100.EngineGR])
	require.Less(t, u.Busy[gf100.EngineGR], time.Since(begin))
	require.Zero(t, u.Busy[gf100.EngineCE0])
	require.Positive(t, calls.Load())

	// An entry that waits has been fetched and has not ended.
	c.submit(acquire(0, 1, opAcquire)...)
	r.eventually("waiting", func() bool { return r.card.Use(1).Barred })
	waits := r.card.Use(1)
	require.Equal(t, uint64(3), waits.Ended)
	require.True(t, waits.Underway)
	require.False(t, waits.Idle)

	// It is the same entry for a channel that was unbound in the middle of it.
	c.disable()
	c.kick()
	c.unbind()
	c.bind()
	again := r.card.Use(1)
	require.True(t, again.Underway && again.Barred)
	require.Zero(t, again.Ended)
	require.Zero(t, again.Busy)
	r.vramWrite32(c.sem, 1)
	c.enable()
	r.eventually("idle", idle)
	require.Equal(t, uint64(1), r.card.Use(1).Ended)

	c.disable()
	u = r.card.Use(1)
	require.True(t, u.Barred)
	require.False(t, u.Idle)
}
