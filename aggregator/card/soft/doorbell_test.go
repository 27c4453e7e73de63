package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestDoorbellFlushesAliases: what a processor stored to an alias before it wrote GP_PUT is what the
// channel fetches.
func TestDoorbellFlushesAliases(t *testing.T) {
	r := newRig(t, soft.Config{Map: aperture.MapBAR1})
	area, data := r.alloc(gf100.Channels*gf100.USERDSize), r.alloc(0x1000)
	s := r.newSpace()
	s.mapVRAM(userdBAR1, area, gf100.Channels*gf100.USERDSize)
	s.mapVRAM(0x100000, data, 0x1000)
	s.mapVRAM(0x200000, data, 0x1000)
	r.wr(0x1704, 1<<31|uint32(r.instance(s, 128<<20-1)>>12))
	require.NoError(t, r.card.OpenWindows())
	t.Cleanup(func() { require.NoError(t, r.card.CloseWindows()) })
	require.EqualValues(t, 1, r.card.Stats().Windows.Aliases.Load())
	c := r.newChannel(1, area)
	r.runlist(1)
	const from, to = 0x10000000, 0x20000000
	c.space.mapVRAM(from, data, 0x1000)
	result := r.alloc(0x1000)
	c.space.mapVRAM(to, result, 0x1000)
	c.submit(incr(4, 0, classCE0)...)
	for _, at := range []int64{0x100000, 0x200000} {
		mem, err := unix.Mmap(int(r.card.Windows()[0].File.Fd()), at, 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		for n := range uint32(200) {
			mem[0] = byte(n)
			c.words(copyCE(4, to, from, 4)...)
			c.submit(release(0, n+1)...)
			c.waitSemaphore(0, n+1)
			require.Equal(t, byte(n), byte(r.vram32(result)))
		}
		require.NoError(t, unix.Munmap(mem))
		c.submit(release(0, 0)...)
		c.waitSemaphore(0, 0)
	}
}
