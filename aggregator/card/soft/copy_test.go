package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// A copy of many steps, into memory that lies scattered.
func TestCopyLarge(t *testing.T) {
	r, c := newChannelRig(t, soft.Config{})
	const n = 3 << 20
	const va = 0x10000000
	mem := r.alloc(2 * n)
	for off := uint64(0); off < n; off += 4096 {
		// Pages in reverse: no two lie together.
		c.space.mapVRAM(va+off, mem+2*n-4096-off, 4096)
	}
	for i := range n / 4 {
		r.host.store(uint64(i)*4, uint32(i)*2654435761)
	}
	want := append([]byte(nil), r.host.ram[:n]...)
	c.submit(cat(incr(2, 0, classM2MF), copyM2MF(va, vaRAM, n), release(0, 1))...)
	c.waitSemaphore(0, 1)
	clear(r.host.ram)
	c.submit(cat(incr(4, 0, classCE1), linesCE(4, vaRAM, va, 0x8000, n/0x8000), release(0, 2))...)
	c.waitSemaphore(0, 2)
	require.True(t, string(want) == string(r.host.ram[:n]), "the data came back")
}
