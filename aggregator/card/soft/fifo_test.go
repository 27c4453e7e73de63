package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// endless keeps a channel busy: a copy that never ends, in steps.
func (c *testChannel) endless() {
	// 2^32-1 lines of 1 MiB onto the same 1 MiB.
	c.submit(cat(incr(2, 0, classM2MF), incr(2, 0x238, 0, vaRAM), incr(2, 0x30c, 0, vaData),
		incr(2, 0x314, 0, 0), incr(2, 0x31c, 1<<20, ^uint32(0)), incr(2, 0x300, 1<<4|1<<8))...)
}

func (r *rig) bytes() uint64 { return r.card.Stats().Engine.Class(0x9039).Bytes.Load() }

// running waits until the endless copy moves.
func (r *rig) running() {
	r.t.Helper()
	before := r.bytes()
	r.eventually("copying", func() bool { return r.bytes() > before })
}

// stopped checks that nothing moves.
func (r *rig) stopped() {
	r.t.Helper()
	before := r.bytes()
	r.steady("nothing moves", func() bool { return r.bytes() == before })
}

// A channel runs only while it is bound, enabled, in the runlist, with PFIFO and its
// runlist on. Without any of these it stops; with it again, it continues.
func TestChannelRequirements(t *testing.T) {
	for _, tc := range []struct {
		name    string
		off, on func(r *rig, c *testChannel)
	}{
		{"enable", func(_ *rig, c *testChannel) { c.disable() }, func(_ *rig, c *testChannel) { c.enable() }},
		{"runlist", func(r *rig, _ *testChannel) { r.runlist() }, func(r *rig, _ *testChannel) { r.runlist(1) }},
		{"PFIFO", func(r *rig, _ *testChannel) { r.wr(0x2200, 0) }, func(r *rig, _ *testChannel) { r.wr(0x2200, 1) }},
		{"SCHED_DISABLE", func(r *rig, _ *testChannel) { r.wr(0x2630, ^uint32(0)) }, func(r *rig, _ *testChannel) { r.wr(0x2630, 0) }},
		{"binding", func(_ *rig, c *testChannel) { c.unbind() }, func(_ *rig, c *testChannel) { c.bind() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c := newChannelRig(t, soft.Config{})
			tc.off(r, c)
			c.submit(release(0, 1)...)
			r.steady("it does not run", func() bool { return c.semaphore(0) == 0 })
			tc.on(r, c)
			c.waitSemaphore(0, 1)

			c.endless()
			r.running()
			tc.off(r, c)
			r.eventually("left", func() bool { return r.rd(0x2640)&(1<<28) == 0 && r.rd(0x3004+8)&(1<<28) == 0 })
			r.eventually("preempted", func() bool { r.wr(0x2634, 1); return r.rd(0x2634) == 1 })
			r.stopped()
			tc.on(r, c)
			r.running()
		})
	}
}

// A doorbell is any write of a byte of GP_PUT, where 002254 says that the poll area lies.
func TestDoorbells(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	stats := r.card.Stats()
	r.write32(soft.BAR1, 77*gf100.USERDSize+gf100.USERDGPPut, 3)
	require.EqualValues(t, 1, stats.UnboundDoorbells.Load())
	for _, tc := range []struct {
		off       uint64
		n         int
		doorbells uint64
	}{
		{0x5088, 4, 0}, {0x5088, 8, 1}, {0x508c, 4, 1}, {0x508b, 1, 0}, {0x508c, 1, 1}, {0x508f, 1, 1}, {0x5090, 1, 0},
		{0x4f80, 4096, 1}, {0x5000, 2 * 4096, 2}, {0x7ff00, 4096, 0}, {0x80000, 4096, 0}, {0x7f08c, 4096, 1},
	} {
		before := stats.Doorbells.Load()
		r.card.WriteBAR(soft.BAR1, tc.off, make([]byte, tc.n))
		require.Equal(t, tc.doorbells, stats.Doorbells.Load()-before, "%#x+%d", tc.off, tc.n)
	}
	for _, base := range []uint32{0x100, 0xfffffff, 0x7fff, 0x7f80} {
		r.wr(0x2254, base)
		for _, off := range []uint64{0, 1<<20 - 4096, 128<<20 - 4096} {
			r.card.WriteBAR(soft.BAR1, off, make([]byte, 4096))
		}
	}
	r.wr(0x2254, 0x10000000)
	c.alive()
}

// The saved channels of one owner displace only the oldest of the same owner. An owner
// cannot name another's.
func TestContextsByOwner(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	own := func(owner uint32) func(b []byte) {
		return func(b []byte) {
			gf100.InstOwner.Put(b, owner)
			gf100.InstKeep.Put(b, 3)
		}
	}
	c.ramfc(own(1))
	c.unbind()
	c.bind()
	for _, step := range []struct {
		others uint32 // owner of channels that are bound and unbound in between
		n      int    // how many
		as     uint32
		kept   bool
	}{{2, 5, 1, true}, {1, 2, 1, true}, {1, 3, 1, false}, {1, 0, 2, false}} {
		c.submit(incr(2, 0, classM2MF)...)
		c.drained()
		c.disable()
		c.kick()
		c.unbind()
		c.ramfc(own(step.as))
		for range step.n {
			inst := r.alloc(gf100.InstanceSize)
			b := make([]byte, gf100.InstanceSize)
			own(step.others)(b)
			r.vramWrite(inst, b)
			r.wr(0x3000+2*8, 0xc0000000|uint32(inst>>12))
			r.wr(0x3000+2*8, 0)
		}
		c.bind()
		c.enable()
		c.submit(incr(2, 0x238, 0)...)
		if !step.kept {
			r.pbdmaError(gf100.PBDMAIntrEmptySubch, 2, 0x238, 0)
		}
		c.drained()
		require.Zero(t, r.rd(0x25a0), "%+v", step)
	}
}

// An instance block that is not in VRAM binds no channel.
func TestBindNonsense(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	for _, inst := range []uint32{0xfffffff, 64 << 20 >> 12} {
		r.wr(0x3000+2*8, 0xc0000000|inst)
		r.wr(0x3004+2*8, 1)
		r.runlist(1, 2)
		unbound := r.card.Stats().UnboundDoorbells.Load()
		r.write32(soft.BAR1, 2*gf100.USERDSize+gf100.USERDGPPut, 1)
		require.Equal(t, unbound+1, r.card.Stats().UnboundDoorbells.Load())
		c.alive()
	}
}

// New channels begin with the class state that the driver made, also after a reset, until a driver
// makes another.
func TestGoldenState(t *testing.T) {
	r := newRig(t, soft.Config{})
	golden := func(method, v uint32) {
		r.wr(0x40448c, v)
		r.wr(0x404488, 1<<31|method<<14|classM2MF)
	}
	inline := func(v uint32) { // to where new channels write
		c := r.newChannel(1, r.bar1())
		r.runlist(1)
		c.submit(cat(incr(2, 0, classM2MF), incr(2, 0x31c, 4, 1), incr(2, 0x300, 0x111), nonIncr(2, 0x304, v))...)
	}
	reset := func() {
		require.NoError(t, r.card.Reset())
		r.next = 1 << 20
		r.start()
	}
	golden(0x23c, vaRAM) // OFFSET_OUT
	for v := range uint32(2) {
		inline(v + 7)
		r.eventually("class state", func() bool { return r.host.load(0) == v+7 })
		reset()
	}
	golden(0x31c, 1)
	inline(1)
	r.eventually("fault", func() bool { return r.rd(0x259c) != 0 })
}

// A driver that restores its memory after a reset finds its channels as they were, and the class
// state of new ones. States are bounded over many resets. The next host finds none.
func TestContextsOutliveResets(t *testing.T) {
	r := newRig(t, soft.Config{})
	golden := func(method, v uint32) {
		r.wr(0x40448c, v)
		r.wr(0x404488, 1<<31|method<<14|classM2MF)
	}
	area := r.bar1()
	inline := func(id, v uint32) { // to where new channels write
		c := r.newChannel(id, area)
		r.runlist(1, id)
		c.submit(cat(incr(2, 0, classM2MF), incr(2, 0x31c, 4, 1), incr(2, 0x300, 0x111), nonIncr(2, 0x304, v))...)
	}
	wake := func(c *testChannel, resets func()) {
		c.disable()
		c.kick()
		window, saved := r.rd(0x1704), r.vramRead(0, int(r.next))
		resets()
		r.start()
		r.vramWrite(0, saved)
		r.wr(0x1704, window)
		c.bind()
		c.enable()
		r.runlist(1)
	}
	reset := func() { require.NoError(t, r.card.Reset()) }
	golden(0x23c, vaRAM) // OFFSET_OUT
	c, other := r.newChannel(1, area), r.alloc(gf100.InstanceSize)
	r.runlist(1)
	for range 3 {
		for id := range uint32(gf100.Channels - 2) {
			r.wr(0x3000+(id+2)*8, 0xc0000000|uint32(other>>12))
		}
		c.submit(incr(2, 0, classM2MF)...)
		c.drained()
		wake(c, reset)
		c.submit(incr(2, 0x238, 0)...)
		c.drained()
		require.Less(t, r.card.SavedContexts(), gf100.Channels)
	}
	inline(2, 0x11223344)
	r.eventually("class state", func() bool { return r.host.load(0) == 0x11223344 })
	for _, bound := range []bool{true, false} {
		c.submit(incr(2, 0, classM2MF)...)
		c.drained()
		wake(c, func() {
			if !bound {
				c.unbind()
			}
			r.card.DetachHost()
			r.card.AttachHost(r.host)
			reset()
			require.Zero(t, r.card.SavedContexts())
		})
		c.submit(incr(2, 0x238, 0)...)
		r.pbdmaError(gf100.PBDMAIntrEmptySubch, 2, 0x238, 0)
	}
	golden(0x23c, vaRAM)
	wake(c, reset)
	golden(0x31c, 1) // of another driver
	inline(3, 1)
	r.eventually("fault", func() bool { return r.rd(0x259c) != 0 })
}
