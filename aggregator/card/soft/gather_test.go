package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// newAliasedRig is a rig of a channel whose client has mapped a page in two places of BAR1.
func newAliasedRig(t *testing.T) (r *rig, c *testChannel, gathers func() int) {
	r = newRig(t, soft.Config{Map: homes.MapBAR1})
	area, twice := r.alloc(gf100.Channels*gf100.USERDSize), r.alloc(0x1000)
	s := r.newSpace()
	s.mapVRAM(userdBAR1, area, gf100.Channels*gf100.USERDSize)
	s.mapVRAM(0x100000, twice, 0x1000)
	s.mapVRAM(0x200000, twice, 0x1000)
	r.wr(0x1704, 1<<31|uint32(r.instance(s, 128<<20-1)>>12))
	require.NoError(t, r.card.OpenWindows())
	t.Cleanup(func() { require.NoError(t, r.card.CloseWindows()) })
	require.EqualValues(t, 1, r.card.Stats().Windows.Replicas.Load())
	c = r.newChannel(1, area)
	r.runlist(1)
	return r, c, func() int { return int(r.card.Stats().Windows.Gathers.Load()) }
}

// TestGathersByGPPut: what GP_PUT names is fetched after one gather that began when GP_PUT
// said so, however much it names, wherever the ring begins anew, and also if it was taken back.
// What it named before is not gathered for again.
func TestGathersByGPPut(t *testing.T) {
	r, c, gathers := newAliasedRig(t)
	require.Zero(t, gathers(), "there was no doorbell")
	for n := range 3 << ringLog2 {
		c.submit(release(0, uint32(n)+1)...)
		c.waitSemaphore(0, uint32(n)+1)
		require.Equal(t, n+1, gathers())
	}

	before := gathers()
	for n := range uint32(5) {
		c.words(release(n, 1)...)
	}
	c.bell()
	c.waitSemaphore(4, 1)
	c.bell() // which says nothing new
	c.submit(release(0, 2)...)
	c.waitSemaphore(0, 2)
	require.Equal(t, before+2, gathers())

	before = gathers()
	c.words(acquire(1, 5, opAcquire)...)
	c.words(release(2, 1)...)
	back := c.put
	c.words(release(3, 2)...)
	c.bell()
	r.eventually("the ring was looked at", func() bool { return gathers() > before })
	c.put = back
	c.bell() // the last one is taken back
	r.vramWrite32(c.sem+16, 5)
	c.drained()
	c.submit(release(3, 3)...)
	c.waitSemaphore(3, 3)
	require.Equal(t, before+2, gathers(), "it had been gathered for another entry")

	before = gathers()
	c.words(acquire(1, 2, opAcquire)...)
	c.words(release(2, 2)...)
	c.words(release(3, 2)...)
	c.bell()
	r.eventually("the ring was looked at", func() bool { return gathers() > before })
	c.bellWith(1 << ringLog2)
	r.vramWrite32(c.sem+16, 2)
	r.eventually("error", func() bool { return r.rd(0x25a0) != 0 })
	r.wr(r.pbdma()+0x40108, ^uint32(0))
	require.Equal(t, before+1, gathers())
	c.put = c.userd32(gf100.USERDGPGet)
	c.submit(release(4, 2)...) // where there was another entry, which had been gathered for
	c.waitSemaphore(4, 2)
	require.Equal(t, before+2, gathers())
	require.EqualValues(t, 1, c.semaphore(2), "it was taken back")
}
