package gf100

import (
	"encoding/binary"
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

func (c *ConfigSpace) put(off, v uint32) {
	c.Write(off, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
}

// decode prints the space as lspci would.
func decode(c *ConfigSpace) string {
	var b strings.Builder
	p := func(f string, args ...any) { fmt.Fprintf(&b, f+"\n", args...) }
	id, class, sub := c.Word(0), c.Word(8), c.Word(0x2c)
	p("%04x: %04x:%04x (rev %02x)", class>>16, id&0xffff, id>>16, class&0xff)
	p("Subsystem: %04x:%04x", sub&0xffff, sub>>16)
	p("Control: %04x Status: %04x", c.Word(4)&0xffff, c.Word(4)>>16)
	p("Interrupt: pin %c routed to IRQ %d", 'A'+c.Word(0x3c)>>8&0xff-1, c.Word(0x3c)&0xff)
	for i := 0; i < 6; i++ {
		v, size := c.Word(0x10+uint32(i)*4), c.BARSize(i)
		switch {
		case size == 0:
		case v&1 != 0:
			p("Region %d: I/O ports [size=%d]", i, size)
		case v&6 == 4:
			p("Region %d: Memory (64-bit, prefetchable=%d) [size=%dM]", i, v>>3&1, size>>20)
			i++
		default:
			p("Region %d: Memory (32-bit, prefetchable=%d) [size=%dM]", i, v>>3&1, size>>20)
		}
	}
	p("Expansion ROM: %08x", c.Word(0x30))
	for at := c.Word(0x34) & 0xff; at != 0; at = c.Word(at) >> 8 & 0xff {
		head := c.Word(at)
		switch head & 0xff {
		case 1:
			p("[%02x] Power Management version %d, status %08x", at, head>>16&7, c.Word(at+4))
		case 5:
			p("[%02x] MSI: enable %d, count 1/%d, 64bit %d", at, head>>16&1, 1<<(head>>17&7), head>>23&1)
		case 0x10:
			p("[%02x] Express (v%d) type %d", at, head>>16&15, head>>20&15)
			p("     DevCap %08x DevCtl %08x", c.Word(at+4), c.Word(at+8))
			p("     LnkCap speed %d width x%d LnkSta speed %d width x%d", c.Word(at+12)&15, c.Word(at+12)>>4&63, c.Word(at+16)>>16&15, c.Word(at+16)>>20&63)
		default:
			p("[%02x] unknown %02x", at, head&0xff)
		}
	}
	p("Extended capabilities: %08x", c.Word(0x100))
	p("Size: %d", c.Size())
	return b.String()
}

// TestConfigGolden is a change detector: a guest's driver sees these values. Run
// with -update to accept new ones.
func TestConfigGolden(t *testing.T) {
	for name, opts := range map[string]ConfigOptions{
		"default": {}, "no-msi": {NoMSI: true}, "no-pcie": {NoPCIe: true}, "plain": {NoMSI: true, NoPCIe: true, BAR1: 256 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(newConfig(t, opts))
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
			before := c.Word(off)
			c.put(off, 0xffffffff)
			v := uint64(c.Word(off))
			mask := uint64(0xfffffff0)
			if before&1 != 0 {
				mask = 0xfffffffc
			}
			size := -(v & mask) & 0xffffffff
			if before&6 == 4 && before&1 == 0 {
				c.put(off+4, 0xffffffff)
				size = -(v&mask | uint64(c.Word(off+4))<<32)
				c.put(off+4, 0x12)
				require.Zero(t, c.Word(off+4)&^0x12)
			}
			require.Equalf(t, c.BARSize(i), size, "BAR%d of %+v", i, opts)
			require.Equal(t, before&0xf, uint32(v)&0xf, "the type does not change")
			c.put(off, uint32(-int64(min(size, 1<<31))))
			require.Equal(t, before&0xf, c.Word(off)&0xf)
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
	c.put(0x68, c.Word(0x68)|1<<16)
	require.True(t, c.MSIEnabled())
	c.Write(0x6a, []byte{0})
	require.False(t, c.MSIEnabled())
	c.Write(0x05, []byte{0x04})
	require.True(t, c.INTxDisabled())
	c.SetINTx(true)
	require.NotZero(t, c.Word(4)&(1<<19))
	c.put(4, 0xffffffff)
	require.NotZero(t, c.Word(4)&(1<<19), "the interrupt status is not the driver's to clear")
	require.Equal(t, uint32(0x547), c.Word(4)&0xffff)
	c.SetINTx(false)
	require.Zero(t, c.Word(4)&(1<<19))
	c.put(0x6c, 0xfee00003)
	require.Equal(t, uint32(0xfee00000), c.Word(0x6c))
	c.Reset()
	require.False(t, c.INTxDisabled())
	require.False(t, newConfig(t, ConfigOptions{NoMSI: true}).MSIEnabled())

	// Identity and what is reserved cannot be written.
	before := decode(c)
	for off := uint32(0); off < 0x100; off += 4 {
		if off < 0x10 || off >= 0x28 && off != 0x3c {
			if off != 4 && off != 0x0c && (off < 0x60 || off >= 0xb4) && off != 0x40 {
				c.put(off, ^c.Word(off))
			}
		}
	}
	require.Equal(t, before, decode(c))
}

// BAR0 shows the same bytes at 088000.
func TestConfigMirror(t *testing.T) {
	c := newConfig(t, ConfigOptions{})
	b := newBench(t, FaceConfig{Config: c})
	for off := uint32(0); off < 0x100; off += 4 {
		require.Equalf(t, c.Word(off), b.Read32(0x88000+off), "%#x", off)
	}
	require.NotZero(t, b.Read32(0x8807c)&0x20, "extended tags")
	b.Write32(0x88080, b.Read32(0x88080)|0x100)
	require.NotZero(t, c.Word(0x80)&0x100)
	b.Write32(0x88050, 1)
	require.Equal(t, uint32(1), b.Read32(0x88050))
	b.Write32(0x88460, 0x2230)
	require.Equal(t, uint32(0x2230), b.Read32(0x88460))
	b.Write(0x88704, []byte{0xff})
	var p [1]byte
	b.Read(0x8808b, p[:])
	require.Equal(t, byte(c.Word(0x88)>>24), p[0])
}

func TestConfigState(t *testing.T) {
	a, b := newConfig(t, ConfigOptions{}), newConfig(t, ConfigOptions{})
	a.put(0x10, 0xfd000000)
	a.put(0x68, 1<<16)
	require.NoError(t, b.SetState(a.State()))
	require.True(t, b.MSIEnabled())
	require.Equal(t, uint32(0xfd000000), b.Word(0x10))
}

// TestConfigIdentity: another board of the chip, and what is left out stays a
// Quadro 6000's.
func TestConfigIdentity(t *testing.T) {
	c, err := NewConfigSpace(ConfigOptions{Device: 0x06dd, Subsystem: 0x0780})
	require.NoError(t, err)
	read := func(off uint32) uint32 {
		var b [4]byte
		c.Read(off, b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	require.Equal(t, uint32(0x06dd10de), read(0x00))
	require.Equal(t, uint32(0x078010de), read(0x2c))
}
