package pci

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var testChip = Chip{Defaults: Options{BAR1: 128 << 20, BAR3: 64 << 20, Device: 1, Subsystem: 2}, BAR0: 16 << 20}

func newConfig(t *testing.T, opts Options) *ConfigSpace {
	t.Helper()
	c, err := NewConfigSpace(testChip, opts)
	require.NoError(t, err)
	return c
}

// Sizing: ones written to a 64-bit BAR, the size's complement reads back.
func TestBARSizing(t *testing.T) {
	for _, opts := range []Options{{}, {BAR1: 1 << 20, BAR3: 16 << 20}, {BAR1: 4 << 30}, {BAR1: 16 << 30, BAR3: 1 << 32}} {
		c := newConfig(t, opts)
		for _, i := range []int{1, 3} {
			off := uint32(0x10 + i*4)
			c.Write32(off, 0xffffffff)
			c.Write32(off+4, 0xffffffff)
			require.Equal(t, c.BARSize(i), -(uint64(c.Read32(off+4))<<32 | uint64(c.Read32(off)&^0xf)), "BAR%d of %+v", i, opts)
		}
	}
	require.Zero(t, newConfig(t, Options{}).BARSize(2))
	require.Zero(t, newConfig(t, Options{}).BARSize(6))
}

func TestConfigRefused(t *testing.T) {
	for _, opts := range []Options{{BAR1: 3 << 20}, {BAR3: 4096}, {BAR1: 1<<40 + 1}} {
		_, err := NewConfigSpace(testChip, opts)
		require.ErrorContains(t, err, "need a power of two, 1 MiB or more")
	}
}

func TestConfigControl(t *testing.T) {
	c := newConfig(t, Options{})
	require.False(t, c.MSIEnabled() || c.INTxDisabled())
	c.Write32(0x68, c.Read32(0x68)|1<<16)
	require.True(t, c.MSIEnabled())
	c.Write(0x6a, []byte{0})
	require.False(t, c.MSIEnabled())
	c.Write(0x05, []byte{0x04})
	require.True(t, c.INTxDisabled())
	c.SetINTx(true)
	require.NotZero(t, c.Read32(4)&(1<<19))
	c.Write32(4, 0xffffffff)
	require.NotZero(t, c.Read32(4)&(1<<19), "the interrupt status is not the driver's to clear")
	require.Equal(t, uint32(0x547), c.Read32(4)&0xffff)
	c.SetINTx(false)
	require.Zero(t, c.Read32(4)&(1<<19))
	c.Write32(0x6c, 0xfee00003)
	require.Equal(t, uint32(0xfee00000), c.Read32(0x6c))
	c.Reset()
	require.False(t, c.INTxDisabled())
	require.False(t, newConfig(t, Options{NoMSI: true}).MSIEnabled())
}
