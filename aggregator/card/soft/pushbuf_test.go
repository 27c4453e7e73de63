package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func TestGPFIFOEntries(t *testing.T) {
	t.Run("control entries", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.entry(0) // no operation
		c.alive()
		c.entry(uint64(gf100.GPOpIllegal) << 32)
		c.doorbell()
		r.pbdmaError(gf100.PBDMAIntrGPEntry, 0, 0, gf100.GPOpIllegal)
		c.alive()
	})
	t.Run("levels", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		top := c.pushWords(release(0, 1)...)
		sub := c.pushWords(release(1, 1)...) | 1<<41
		c.entry(top)
		c.entry(sub)
		c.doorbell()
		c.drained()
		end := uint32(top) + 5*4
		r.eventually("top-level GET", func() bool { return c.userd32(gf100.USERDTopLevelGet) == end })
		require.Equal(t, uint32(sub)+5*4, c.userd32(gf100.USERDGet))
	})
	t.Run("GP_PUT outside the ring", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.doorbellWith(1 << ringLog2)
		r.eventually("error", func() bool { return r.rd(0x25a0) != 0 })
		require.EqualValues(t, 1, r.rd(r.pbdma()+0x40120), "it names the channel")
		r.pbdmaError(gf100.PBDMAIntrGPPtr, 0, 0, 1<<ringLog2)
		c.alive()
	})
}

// pbdma returns the register offset of the PBDMA with an interrupt.
func (r *rig) pbdma() uint32 {
	r.t.Helper()
	mask := r.rd(0x25a0)
	for i := range uint32(gf100.PBDMAs) {
		if mask>>i&1 != 0 {
			return i * 0x2000
		}
	}
	require.FailNow(r.t, "no PBDMA has an interrupt")
	return 0
}

func TestHostMethods(t *testing.T) {
	t.Run("SET_REFERENCE", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.submit(incr(0, 0x50, 0xabcd)...)
		r.eventually("REF", func() bool { return c.userd32(gf100.USERDRef) == 0xabcd })
		c.drained()
		c.kick()
		require.Equal(t, uint32(0xabcd), r.vram32(c.inst+0x28), "RAMFC has it too")
	})
	t.Run("a channel's own invalidate", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.submit(release32(vaRAM, 1)...)
		r.eventually("the page is known", func() bool { return r.host.load(0) == 1 })
		c.space.mapRAM(vaRAM, 0x10000, 0x1000)
		c.submit(cat(release32(vaRAM, 2), incr(0, 0x28, 0, 9<<27), release32(vaRAM, 3), release(0, 1))...)
		c.waitSemaphore(0, 1)
		require.Equal(t, []uint32{2, 3}, []uint32{r.host.load(0), r.host.load(0x10000)}, "where it was, and where it is")
	})
	t.Run("a method that the driver does not pass over comes again", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.submit(incr(7, 0x404, 1)...)
		r.eventually("error", func() bool { return r.rd(0x25a0) != 0 })
		r.wr(r.pbdma()+0x40108, ^uint32(0))
		r.pbdmaError(gf100.PBDMAIntrEmptySubch, 7, 0x404, 1)
		c.alive()
	})
	t.Run("a class of another engine", func(t *testing.T) {
		r, c := newChannelRig(t, soft.Config{})
		c.submit(incr(1, 0, classM2MF|4<<16)...)
		r.pbdmaError(gf100.PBDMAIntrMethod, 1, 0, classM2MF|4<<16)
		c.alive()
	})
}

// pbdmaError waits for a PBDMA's interrupt, checks it, and passes the method
// over as nouveau does.
func (r *rig) pbdmaError(intr, subch, method, data uint32) {
	r.t.Helper()
	r.eventually("PBDMA error", func() bool { return r.rd(0x2100)&(1<<29) != 0 })
	p := r.pbdma()
	require.Equal(r.t, intr, r.rd(p+0x40108))
	require.Equal(r.t, subch<<16|method, r.rd(p+0x400c0)&0x73ffc)
	require.Equal(r.t, data, r.rd(p+0x400c4))
	r.wr(p+0x400c0, 0x80600008)
	r.wr(p+0x40108, intr)
}
