package soft_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
)

// copies are the ways to move bytes. Each is run with the engines on, where the
// data must arrive, and off, where it must not: the control that shows that the
// test can fail.
var copies = []struct {
	name  string
	setup []uint32
	words func(dst, src, n uint32) []uint32
	class uint16
}{
	{"M2MF", incr(2, 0, classM2MF), copyM2MF, 0x9039},
	{"CE0", incr(4, 0, classCE0), func(d, s, n uint32) []uint32 { return copyCE(4, d, s, n) }, 0x90b5},
	{"CE1", incr(5, 0, classCE1), func(d, s, n uint32) []uint32 { return copyCE(5, d, s, n) }, 0x90b5},
	{"M2MF inline", incr(2, 0, classM2MF), func(d, _, n uint32) []uint32 {
		data := make([]uint32, n/4)
		for i := range data {
			data[i] = uint32(i) * 0x01010101
		}
		return cat(incr(2, 0x238, 0, d), incr(2, 0x31c, n, 1), incr(2, 0x300, 1<<0|1<<4|1<<8), nonIncr(2, 0x304, data...))
	}, 0x9039},
}

func TestCopies(t *testing.T) {
	for _, cp := range copies {
		for _, off := range []bool{false, true} {
			t.Run(cp.name+map[bool]string{false: "", true: " without engines"}[off], func(t *testing.T) {
				r, c := newChannelRig(t, soft.Config{DisableEngines: off})
				src := make([]byte, 512)
				for i := range src {
					src[i] = byte(i / 4)
				}
				r.vramWrite(c.data, src)
				c.submit(cat(cp.setup, cp.words(vaRAM+100, vaData, 512), release(0, 1))...)
				c.waitSemaphore(0, 1)
				got := r.host.ram[100:612]
				stats := r.card.Stats().Engine.Class(cp.class)
				if off {
					require.Equal(t, make([]byte, 512), got)
					require.Zero(t, stats.Bytes.Load())
					return
				}
				require.Equal(t, src, got)
				require.EqualValues(t, 512, stats.Bytes.Load(), "the engine says that it moved them")
			})
		}
	}
}

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
