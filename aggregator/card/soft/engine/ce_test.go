package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// TestStatsOfClass: a copy counts for the class of its channel, with its lines and flushes.
func TestStatsOfClass(t *testing.T) {
	c := CE{Class: 0x90b8}
	m := newTestMemory()
	m.mapRange(0x10000, 5*pageSize)
	m.mapRange(0x80000, 5*pageSize)
	env := newEnv(m)
	c.send(t, env, writes{{0x310, 0x10000}, {0x318, 0x80000}, {0x31c, pageSize}, {0x320, pageSize}, {0x324, pageSize}, {0x328, 5}, {0x300, 0x110}, {0x304, 0}, {0x140, 0}, {0x100, 0}})
	st := env.Stats.Class(0x90b8)
	require.EqualValues(t, 1, st.Launches.Load())
	require.EqualValues(t, 5*pageSize, st.Bytes.Load())
	require.EqualValues(t, 5, st.Lines.Load())
	require.EqualValues(t, 2, st.Flushes.Load())
	require.Zero(t, env.Stats.Class(0x90b5).Methods.Load())
}

// TestQueryCarry: the long query's tail is addressed without a carry, as the
// microcode does it.
func TestQueryCarry(t *testing.T) {
	var c CE
	m := newTestMemory()
	m.mapPage(0x1_ffff_f000)
	m.mapPage(0x1_0000_0000)
	env := newEnv(m)
	c.send(t, env, writes{{0x338, 1}, {0x33c, 0xfffffffc}, {0x340, 77}, {0x300, 0x1110}})
	require.EqualValues(t, 77, m.word(0x1_ffff_fffc))
	require.EqualValues(t, 0, m.word(0x1_0000_0000))
	require.EqualValues(t, testNow&0xffffffff, m.word(0x1_0000_0004))
	c.send(t, env, writes{{0x33c, 0x8}, {0x340, 78}, {0x300, 0x3110}})
	require.EqualValues(t, 78, m.word(0x1_0000_0008))
}

// TestMicrocodeLimits: 16-bit factors and 32-bit sums, as the microcode computes
// the place in a tiled surface.
func TestMicrocodeLimits(t *testing.T) {
	var v [ceSlots]uint32
	s := ceSrc
	v[s.high], v[s.low] = 1, 0x1000
	v[s.xsize], v[s.ysize] = 0x10040, 64 // 0x40: the product of 16-bit factors
	v[s.xoff] = 0x10000                  // 0
	got := s.surface(&v, 1, false)
	require.EqualValues(t, 0x1_0000_1000, got.VA)
	require.EqualValues(t, texture.GOBBytes, got.Stride, "one tile wide")
	require.Zero(t, got.X)

	// Offsets of 4 GiB and more are cut to 32 bits.
	v[s.xsize], v[s.xoff] = 0xffc0, 0
	v[s.mode] = 0x050 // 32 GOBs: 16 KiB tiles, 1023 in a row
	v[s.ysize], v[s.zoff] = 0x1fff, 0xfff
	// 4095 slices of 32 rows of 1023 tiles are more than 32 bits, and the product
	// of slice and width, 0x3fec01, is more than the next factor's 16 bits.
	want := uint64(0x1_0000_1000) + uint64(0xec01*32<<14&0xffffffff)
	require.EqualValues(t, want, s.surface(&v, 1, false).VA)
}
