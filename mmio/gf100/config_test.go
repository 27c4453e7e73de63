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

// TestConfigGolden is a change detector: a guest's driver sees these values. Run
// with -update to accept new ones.
func TestConfigGolden(t *testing.T) {
	for name, opts := range map[string]ConfigOptions{
		"default": {}, "no-msi": {NoMSI: true, BAR1: 256 << 20, Device: 0x06dd, Subsystem: 0x0780},
	} {
		t.Run(name, func(t *testing.T) {
			got := dump(newConfig(t, opts))
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

// Sizing: ones written, the size's complement and the type read back, the
// address put back.
func TestBARSizing(t *testing.T) {
	for _, opts := range []ConfigOptions{{}, {BAR1: 1 << 20, BAR3: 16 << 20}, {BAR1: 4 << 30}, {BAR1: 16 << 30, BAR3: 1 << 32}} {
		c := newConfig(t, opts)
		for i := 0; i < 6; i++ {
			off := uint32(0x10 + i*4)
			if c.BARSize(i) == 0 {
				continue
			}
			before := c.Read32(off)
			c.Write32(off, 0xffffffff)
			v := uint64(c.Read32(off))
			mask := uint64(0xfffffff0)
			if before&1 != 0 {
				mask = 0xfffffffc
			}
			size := -(v & mask) & 0xffffffff
			if before&6 == 4 && before&1 == 0 {
				c.Write32(off+4, 0xffffffff)
				size = -(v&mask | uint64(c.Read32(off+4))<<32)
				c.Write32(off+4, 0x12)
				require.Zero(t, c.Read32(off+4)&^0x12)
			}
			require.Equalf(t, c.BARSize(i), size, "BAR%d of %+v", i, opts)
			require.Equal(t, before&0xf, uint32(v)&0xf, "the type does not change")
			c.Write32(off, uint32(-int64(min(size, 1<<31))))
			require.Equal(t, before&0xf, c.Read32(off)&0xf)
		}
	}
	require.Zero(t, newConfig(t, ConfigOptions{}).BARSize(2))
	require.Zero(t, newConfig(t, ConfigOptions{}).BARSize(-1))
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

	// Identity and what is reserved cannot be written.
	before := dump(c)
	for off := uint32(0); off < 0x100; off += 4 {
		if off < 0x10 || off >= 0x28 && off != 0x3c {
			if off != 4 && off != 0x0c && (off < 0x60 || off >= 0xb4) && off != 0x40 && off != 0x50 {
				c.Write32(off, ^c.Read32(off))
			}
		}
	}
	require.Equal(t, before, dump(c))
}

// BAR0 shows the same bytes at 088000.
func TestConfigMirror(t *testing.T) {
	c := newConfig(t, ConfigOptions{})
	b := newBench(t, FaceConfig{Config: c})
	for off := uint32(0); off < 0x100; off += 4 {
		require.Equalf(t, c.Read32(off), b.Read32(0x88000+off), "%#x", off)
	}
	require.NotZero(t, b.Read32(0x8807c)&0x20, "extended tags")
	b.Write32(0x88080, b.Read32(0x88080)|0x100)
	require.NotZero(t, c.Read32(0x80)&0x100)
	b.Write32(0x88050, 1)
	require.Equal(t, uint32(1), b.Read32(0x88050))
	b.Write32(0x88460, 0x2230)
	require.Equal(t, uint32(0x2230), b.Read32(0x88460))
	b.Write(0x88704, []byte{0xff})
	var p [1]byte
	b.Read(0x8808b, p[:])
	require.Equal(t, byte(c.Read32(0x88)>>24), p[0])
}
