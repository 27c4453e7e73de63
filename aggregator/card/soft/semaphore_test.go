package soft_test

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestFenceAndInterrupt(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	r.vramWrite64(c.sem+4, ^uint64(0))
	before, began := r.host.edgeCount(), r.rd(0x9400)
	c.submit(cat(release(0, 7), release32(vaSem+16, 7), incr(0, 0x20, 0))...)
	c.waitSemaphore(1, 7)
	require.Equal(t, []uint32{7, 0}, []uint32{c.semaphore(0), r.vram32(c.sem + 4)})
	require.LessOrEqual(t, r.vram32(c.sem+8)-began, r.rd(0x9400)-began, "it is PTIMER's time")
	require.Zero(t, r.vram32(c.sem+24), "a short release writes one word")
	r.eventually("interrupt", func() bool { return r.host.edgeCount() > before })
	require.NotZero(t, r.rd(0x100)&(1<<8), "PMC shows PFIFO")
	require.Equal(t, uint32(1<<31), r.rd(0x2100), "PFIFO shows an engine event")
	require.Equal(t, uint32(1), r.rd(0x25a4))
	r.wr(0x25a8, 1)
	require.Zero(t, r.rd(0x2100))
	require.False(t, r.host.level())
	c.drained()
}

func TestNonStallInterruptNamesTheEngine(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	for object, bit := range map[uint32]uint32{classM2MF: 0, classCE0: 4, classCE1: 5, classSoftware: 0} {
		c.submit(cat(incr(3, 0, object), incr(3, 0x20, 0))...)
		r.eventually("event", func() bool { return r.rd(0x25a4) != 0 })
		require.Equal(t, uint32(1)<<bit, r.rd(0x25a4))
		r.wr(0x25a8+bit*4, 1)
	}
}

// A wait ends with a store of the processor to its own memory, which the card is not told of.
func TestAcquire(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	for i, tc := range []struct{ op, want, not, then uint32 }{
		{opAcquire, 5, 6, 5},
		{opAcquireGEq, 5, 4, 6},
		{opAcquireGEq, 5, 4, 5},
		{opAcquireGEq, 0xfffffff0, 0xffffffef, 3}, // across the wrap
		{opAcquireAnd, 6, 1, 3},
	} {
		n, stats := uint32(i+1), r.card.Stats()
		binary.LittleEndian.PutUint32(r.host.ram, tc.not)
		c.submit(cat(semaphoreOp(vaRAM, tc.want, tc.op), release(1, n))...)
		r.eventually("it waits", func() bool { return stats.AcquireWaits.Load() == uint64(n) })
		r.steady("it waits", func() bool { return c.semaphore(1) != n })
		binary.LittleEndian.PutUint32(r.host.ram, tc.then)
		c.waitSemaphore(1, n)
		require.EqualValues(t, n, stats.Acquires.Load())
		require.EqualValues(t, n, stats.AcquireWaits.Load())
	}
}

// noTime is the clock of a card on which looks that fail take no time, so that each notice makes one.
func noTime() uint64 { return 0 }

// A look at a semaphore is charged to the channel that looks, so releases of one owner make no channel
// of another look again.
func TestOwnersAreWokenByTheirOwnReleases(t *testing.T) {
	const releases = 200
	var looks atomic.Int64
	var sem atomic.Uint64
	r, cs := newChannelsOf(t, 3, soft.Config{Clock: noTime, Watch: func(channel uint32, _ shadowpt.Target, addr uint64, _ int, _ bool) {
		if channel == 1 && addr == sem.Load() {
			looks.Add(1)
		}
	}})
	r.card.StopRetries()
	waiter, partner, other := cs[0], cs[1], cs[2]
	for _, c := range cs[:2] {
		c.ramfc(func(b []byte) { gf100.InstOwner.Put(b, 1) })
		c.bind()
	}
	partner.space.mapVRAM(vaHole, waiter.sem, 0x1000)
	sem.Store(waiter.sem)
	parked := func() bool { return !r.card.Use(1).Running && r.card.Use(1).Barred }
	waiter.submit(cat(acquire(0, 1, opAcquire), release(1, 1))...)
	r.eventually("it waits", func() bool { return looks.Load() > 0 && parked() })

	before := looks.Load()
	other.submit(cat(repeat(releases, cat(release32(vaSem+64, 1), incr(0, 0x80, 0))...), release(1, 1))...)
	other.waitSemaphore(1, 1)
	r.eventually("it waits", parked)
	const writes = 10 // of the test's through the windows, each of which wakes all
	require.LessOrEqual(t, looks.Load()-before, int64(writes), "for %d releases of another owner", releases)

	partner.submit(release32(vaHole, 1)...)
	waiter.waitSemaphore(1, 1)
}

// Channels that wait for a value that is not released take a bounded part of the time, however often
// another one releases, and are woken by the value all the same. Here a look and a release cost about
// the same time: without a bound each release costs as many looks as there are channels.
func TestFailedLooksAreBounded(t *testing.T) {
	const channels, releases, value = 30, 1000, 1 << 20
	var v virtual
	var looks, sem atomic.Uint64
	v.each = func(channel uint32, _ shadowpt.Target, addr uint64, _ bool) {
		if channel < channels && addr == sem.Load() {
			looks.Add(1)
		}
	}
	r, cs := newChannelsOf(t, channels, v.config())
	waiters, releaser := cs[:channels-1], cs[channels-1]
	sem.Store(releaser.sem)
	for _, c := range waiters {
		c.space.mapVRAM(vaHole, releaser.sem, 0x1000)
		c.submit(cat(semaphoreOp(vaHole, value, opAcquire), release(1, 1))...)
	}
	r.eventually("all wait", func() bool { return r.card.Stats().AcquireWaits.Load() == channels-1 })

	before := looks.Load()
	releaser.submit(cat(repeat(releases, cat(release(0, 1), incr(0, 0x80, 0))...), release(1, 1))...)
	releaser.waitSemaphore(1, 1)
	require.Less(t, looks.Load()-before, uint64(releases), "for %d releases", releases)

	releaser.submit(release(0, value)...)
	for _, c := range waiters {
		r.eventually("it is woken", func() bool {
			v.now.Add(uint64(time.Millisecond)) // else time stands while nobody works
			return c.semaphore(1) == 1
		})
	}
}

// Nothing makes channels look in a pause: no doorbell, no runlist, no stop and start. A pause is short
// even after looks during which the host did other things, so that a released channel goes on at once.
func TestPausesAreKept(t *testing.T) {
	const channels, rounds = 30, 100
	var v virtual
	var looks, sem atomic.Uint64
	v.each = func(channel uint32, _ shadowpt.Target, addr uint64, _ bool) {
		if channel < channels && addr == sem.Load() {
			looks.Add(1)
			v.now.Add(uint64(time.Millisecond))
		}
	}
	r, cs := newChannelsOf(t, channels, v.config())
	waiters, other := cs[:channels-1], cs[channels-1]
	sem.Store(other.sem)
	var ids []uint32
	for _, c := range cs {
		ids = append(ids, c.id)
	}
	for _, c := range waiters {
		c.space.mapVRAM(vaHole, other.sem, 0x1000)
		c.submit(cat(semaphoreOp(vaHole, 1, opAcquire), release(1, 1))...)
	}
	parked := func() bool {
		return !slices.ContainsFunc(ids[:channels-1], func(id uint32) bool {
			return r.rd(0x3004+id*8)&gf100.ChannelStatus != gf100.ChannelAcquire
		})
	}
	r.eventually("all wait", func() bool { return r.card.Stats().AcquireWaits.Load() == channels-1 && parked() })

	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"doorbells", func() { each(waiters, (*testChannel).doorbell) }},
		{"runlists", func() { r.runlist(ids...) }},
		{"an empty runlist, and a full one", func() { r.runlist(); r.runlist(ids...) }},
		{"PFIFO", func() { r.wr(0x2200, 0); r.wr(0x2200, 1) }},
		{"the scheduler", func() { r.wr(0x2630, 1); r.wr(0x2630, 0) }},
		{"channels", func() { each(waiters, (*testChannel).disable); each(waiters, (*testChannel).enable) }},
	} {
		before := looks.Load()
		for range rounds {
			tc.do()
			r.eventually("all wait", parked)
		}
		require.Less(t, looks.Load()-before, uint64(2*channels), "for %d times %s", rounds, tc.name)
	}

	r.vramWrite32(other.sem, 1)
	v.now.Add(uint64(5 * time.Millisecond))
	each(waiters, func(c *testChannel) { c.waitSemaphore(1, 1) })
}

func each(cs []*testChannel, do func(*testChannel)) {
	for _, c := range cs {
		do(c)
	}
}

// A failed look changes nothing for those who ask the card for its use.
func TestFailedLooksAreNotReported(t *testing.T) {
	var looks, changes, sem atomic.Uint64
	r, c := newChannelRig(t, soft.Config{Clock: noTime, Watch: func(_ uint32, _ shadowpt.Target, addr uint64, _ int, _ bool) {
		if addr == sem.Load() {
			looks.Add(1)
		}
	}})
	r.card.StopRetries()
	sem.Store(c.sem)
	parked := func() bool { u := r.card.Use(1); return u.Barred && !u.Running }
	c.submit(cat(acquire(0, 1, opAcquire), release(1, 1))...)
	r.eventually("it waits", func() bool { return looks.Load() > 0 && parked() })
	r.card.OnUse(func() { changes.Add(1) })
	defer r.card.OnUse(nil)
	for range 20 {
		before := looks.Load()
		r.vramWrite32(c.sem+64, 1)
		r.eventually("it looks", func() bool { return looks.Load() > before && parked() })
	}
	require.Zero(t, changes.Load(), "for failed looks")
	r.vramWrite32(c.sem, 1)
	c.waitSemaphore(1, 1)
	r.eventually("the end is told", func() bool { return changes.Load() > 0 })
}
