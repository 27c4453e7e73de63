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
	waits := r.card.Use(1)
	r.eventually("waiting", func() bool { waits = r.card.Use(1); return waits.Barred && !waits.Running })
	require.Equal(t, uint64(3), waits.Ended)
	require.True(t, waits.Underway)
	require.False(t, waits.Idle)
	told := calls.Load()
	for range 1000 { // it looks at the semaphore again
		c.doorbell()
		require.True(t, r.card.Use(1).Barred, "it still waits")
	}
	r.eventually("waiting", func() bool { return !r.card.Use(1).Running })
	require.LessOrEqual(t, calls.Load(), told+1)

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

// The card tells of an entry that ends while its channel goes on with the next, and of none of the turns
// that a long entry takes.
func TestOnUse(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	told := make(chan struct{}, 1)
	var calls atomic.Int64
	r.card.OnUse(func() {
		calls.Add(1)
		select {
		case told <- struct{}{}:
		default:
		}
	})
	defer r.card.OnUse(nil)
	c.submit(acquire(0, 1, opAcquire)...)
	c.endless()
	r.vramWrite32(c.sem, 1)
	c.doorbell()
	for r.card.Use(1).Ended == 0 {
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatal("nobody was told")
		}
	}
	before, busy := calls.Load(), r.card.Use(1).Busy[gf100.EngineGR]
	r.eventually("turns", func() bool { return r.card.Use(1).Busy[gf100.EngineGR] > busy+50*time.Millisecond })
	require.LessOrEqual(t, calls.Load(), before+1)
}

// A channel is charged for all the time that it has its PBDMA, also between two steps.
func TestTimeBetweenStepsIsCharged(t *testing.T) {
	for _, tc := range []struct {
		name         string
		method, data uint32
	}{{"yield", 0x80, 0}, {"invalidate", 0x2c, 9 << 27}, {"semaphores", 0x18, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			const turns, each = 1000, 10 * time.Microsecond
			var v virtual
			r, c := newChannelRig(t, v.config())
			c.alive()
			idle := func() bool { return r.card.Use(1).Idle }
			r.eventually("idle", idle)
			r.card.OnUse(func() { v.now.Add(uint64(each)) }) // the queue is changed
			defer r.card.OnUse(nil)
			now, used := v.now.Load(), r.card.Use(1).Busy[gf100.EngineGR]
			c.submit(cat(nonIncr(0, tc.method, repeat(turns, tc.data)...), release(0, 1))...)
			c.waitSemaphore(0, 1)
			r.eventually("idle", idle)
			took, charged := time.Duration(v.now.Load()-now), r.card.Use(1).Busy[gf100.EngineGR]-used
			require.LessOrEqual(t, charged, took)
			require.GreaterOrEqual(t, charged, took-each, "all but the doorbell's change")
		})
	}
}
