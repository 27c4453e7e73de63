package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestBellsAfterARound: a bell that nobody traps is found also if GP_PUT is then where the
// bell before it was. The PBDMA had gone on without one in between, and the ring has come
// round.
func TestBellsAfterARound(t *testing.T) {
	rare := doorbell.Pace{Fast: doorbell.MaxSlow, Slow: doorbell.MaxSlow}
	r, c := newChannelRig(t, soft.Config{Doorbell: doorbell.Poll, Pace: rare})
	require.NoError(t, r.card.OpenWindows())
	store := func(n int) { // as through a mapped page: no bell is heard
		for range n {
			c.entry(c.last)
		}
		r.vramWrite32(c.userd+gf100.USERDGPPut, c.put)
	}
	nop := c.place(0)
	c.submit(acquire(0, 1, opAcquire)...)
	bell := c.put
	c.last = nop
	store(40)
	r.vramWrite32(c.sem, 1)
	c.drained()
	store(1<<ringLog2 - 40)
	require.Equal(t, bell, c.put)
	r.card.Look()
	c.drained()
}
