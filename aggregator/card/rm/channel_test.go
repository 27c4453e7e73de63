package rm

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestCopies: channels of both engines copy from RAM to the card's memory and to that of the host, and back, many times
// around their rings.
func TestCopies(t *testing.T) {
	r := newRig(t, Config{})
	g := r.join(3)
	const n = 16 << 10
	from, to := g.mapRAM(0x1_0000_0000, n), g.mapRAM(0x2_0000_0000, n)
	inCard, inHost := uint64(8<<20), uint64(vramSize-n)
	g.apply(ramPages(farVA, 0x1_0000_0000, n), ramPages(farVA+n, 0x2_0000_0000, n),
		card.Change{VA: dataVA, Size: n, Page: page, Addr: g.base() + inCard, Flags: shadowpt.Mapped},
		card.Change{VA: dataVA + n, Size: n, Page: page, Addr: g.base() + inHost, Flags: shadowpt.Mapped})
	clients := []*client{g.open(0, card.Graphics), g.open(1, card.Copy0+1)}
	for i := range 3 * batches {
		c := clients[i%2]
		if i%100 == 0 {
			_, _ = rand.Read(from)
			clear(to)
		}
		c.add(copies(dataVA, farVA, n/2))
		c.add(copies(dataVA+n/2, farVA+n/2, n/2))
		c.submit(copies(dataVA+n, dataVA, n))
		c.submit(copies(farVA+n, dataVA+n, n))
		c.wait()
		if i%100 == 0 {
			require.True(t, bytes.Equal(from, to), "round %d", i)
			got := make([]byte, n)
			for _, at := range []uint64{inCard, inHost} {
				require.True(t, g.gpu.ReadVRAM(g.base()+at, got))
				require.True(t, bytes.Equal(from, got))
				require.True(t, g.gpu.SameVRAM(g.base()+at, got))
			}
		}
	}
	for i, c := range clients {
		eventually(t, c.Quiet)
		require.Equal(t, c.put, c.Progress().GPGet)
		u := r.gpu.Meter().Use(c.ID())
		require.EqualValues(t, 3*batches/2*4, u.Ended)
		require.NotZero(t, u.Busy[[]card.Engine{card.Graphics, card.Copy0 + 1}[i]])
		require.True(t, u.Idle)
		require.Empty(t, c.faults())
		eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.done != 0 })
	}
	g.leave()
	r.gpu.Close()
}

// TestFault: an access without a page ends its channel alone.
func TestFault(t *testing.T) {
	r := newRig(t, Config{})
	g, o := r.join(0), r.join(1)
	bad, good, other := g.open(0, card.Graphics), g.open(1, card.Graphics), o.open(0, card.Graphics)
	bad.submit(copies(0x777_0000, bad.va, 64))
	eventually(t, func() bool { return len(bad.faults()) > 0 })
	require.Equal(t, card.Fault{Kind: card.Translation, Engine: card.Graphics, VA: 0x777_0000, Reason: shadowpt.PageNotPresent, Code: 31}, bad.faults()[0])
	for _, c := range []*client{good, other} {
		c.submit(new(push.Buffer))
		c.wait()
	}
	require.False(t, bad.Running())
	g.leave()
	o.leave()
	r.gpu.Close()
}
