package gf100

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/pci"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func newConfig(t testingT, opts pci.Options) *pci.ConfigSpace {
	t.Helper()
	c, err := NewConfigSpace(opts)
	if err != nil {
		t.Errorf("%v", err)
		t.FailNow()
	}
	return c
}

func dump(c *pci.ConfigSpace) string {
	var b strings.Builder
	for off := uint32(0); off < c.Size(); off += 4 {
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
	for name, opts := range map[string]pci.Options{
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

// BAR0 shows the same bytes at 088000.
func TestConfigMirror(t *testing.T) {
	c := newConfig(t, pci.Options{})
	b := newBench(t, FaceConfig{Config: c})
	require.Equal(t, c.Read32(0x7c), b.Read32(0x8807c))
	b.Write32(0x88460, 0x2230)
	require.Equal(t, uint32(0x2230), c.Read32(0x460))
	var p [1]byte
	b.Read(0x8808b, p[:])
	require.Equal(t, byte(c.Read32(0x88)>>24), p[0])
}
