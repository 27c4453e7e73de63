package gf100

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func newConfig(t testingT, opts ConfigOptions) *ConfigSpace {
	t.Helper()
	c, err := NewConfigSpace(opts)
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
	return c
}

func dump(c *ConfigSpace) string {
	var b strings.Builder
	for off := uint32(0); off < configSize; off += 4 {
		if v := c.Read32(off); v != 0 {
			fmt.Fprintf(&b, "%03x: %08x\n", off, v)
		}
	}
	for i := range 6 {
		fmt.Fprintf(&b, "BAR%d: %#x\n", i, c.BARSize(i))
	}
	fmt.Fprintf(&b, "size: %d\n", c.Size())
	return b.String()
}

// TestConfigGolden is a change detector: a guest's driver sees these values, before and after it
// has written ones to the registers of the standard. Run with -update to accept new ones.
func TestConfigGolden(t *testing.T) {
	for name, opts := range map[string]ConfigOptions{
		"default": {}, "no-msi": {NoMSI: true, BAR1: 256 << 20, Device: 0x06dd, Subsystem: 0x0780},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConfig(t, opts)
			got := dump(c)
			for off := uint32(0); off < 0x100; off += 4 {
				c.Write32(off, 0xffffffff)
			}
			got += "written\n" + dump(c)
			file := filepath.Join("testdata", "config-"+name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// Sizing: ones written to a 64-bit BAR, the size's complement reads back.
func TestBARSizing(t *testing.T) {
	for _, opts := range []ConfigOptions{{}, {BAR1: 1 << 20, BAR3: 16 << 20}, {BAR1: 4 << 30}, {BAR1: 16 << 30, BAR3: 1 << 32}} {
		c := newConfig(t, opts)
		for _, i := range []int{1, 3} {
			off := uint32(0x10 + i*4)
			c.Write32(off, 0xffffffff)
			c.Write32(off+4, 0xffffffff)
			require.Equal(t, c.BARSize(i), -(uint64(c.Read32(off+4))<<32 | uint64(c.Read32(off)&^0xf)), "BAR%d of %+v", i, opts)
		}
	}
	require.Zero(t, newConfig(t, ConfigOptions{}).BARSize(2))
	require.Zero(t, newConfig(t, ConfigOptions{}).BARSize(6))
}

func TestConfigRefused(t *testing.T) {
	for _, opts := range []ConfigOptions{{BAR1: 3 << 20}, {BAR3: 4096}, {BAR1: 1<<40 + 1}} {
		_, err := NewConfigSpace(opts)
		require.ErrorContains(t, err, "need a power of two, 1 MiB or more")
	}
}

func TestConfigControl(t *testing.T) {
	c := newConfig(t, ConfigOptions{})
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
	require.False(t, newConfig(t, ConfigOptions{NoMSI: true}).MSIEnabled())
}

// BAR0 shows the same bytes at 088000.
func TestConfigMirror(t *testing.T) {
	c := newConfig(t, ConfigOptions{})
	b := newBench(t, FaceConfig{Config: c})
	require.Equal(t, c.Read32(0x7c), b.Read32(0x8807c))
	b.Write32(0x88460, 0x2230)
	require.Equal(t, uint32(0x2230), c.Read32(0x460))
	var p [1]byte
	b.Read(0x8808b, p[:])
	require.Equal(t, byte(c.Read32(0x88)>>24), p[0])
}
