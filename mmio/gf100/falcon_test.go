package gf100

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// upload loads code and data as drivers do: auto-increment, and a page tag every
// 64 words of code.
func (b *bench) upload(base uint32, code, data []uint32) {
	b.Write32(base+0x1c0, 1<<24)
	for _, v := range data {
		b.Write32(base+0x1c4, v)
	}
	b.Write32(base+0x180, 1<<24)
	for i, v := range code {
		if i%64 == 0 {
			b.Write32(base+0x188, uint32(i/64))
		}
		b.Write32(base+0x184, v)
	}
}

func (b *bench) data(base, addr uint32, n int) []uint32 {
	b.Write32(base+0x1c0, 1<<25|addr)
	out := make([]uint32, n)
	for i := range out {
		out[i] = b.Read32(base + 0x1c4)
	}
	return out
}

func ramp(n int, first uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = first + uint32(i)
	}
	return out
}

func (b *bench) boot(base uint32) {
	b.upload(base, ramp(128, 0x100), ramp(16, 0x200))
	b.Write32(base+0x10c, 0)
	b.Write32(base+0x104, 0)
	b.Write32(base+0x100, 2)
}

func TestFalconUpload(t *testing.T) {
	for name, base := range map[string]uint32{"PMU": 0x10a000, "FECS": 0x409000, "GPCCS": 0x41a000, "GPCCS 2": 0x512000, "CE0": 0x104000, "CE1": 0x105000} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, FaceConfig{})
			code, data := ramp(256, 0xc0de0000), ramp(200, 0xda7a0000)
			b.upload(base, code, data)
			require.Equal(t, data, b.data(base, 0, len(data)))
			require.Equal(t, data[50:60], b.data(base, 200, 10))
			require.Equal(t, uint32(1<<25|240), b.Read32(base+0x1c0), "the port reads back where it stands")
			b.Write32(base+0x180, 1<<25)
			for i, v := range code {
				require.Equalf(t, v, b.Read32(base+0x184), "code word %d", i)
			}
			require.Equal(t, uint32(cpuHalted), b.Read32(base+0x100))
			b.Write32(base+0x100, 2)
			require.Equal(t, uint32(cpuSleeping), b.Read32(base+0x100))
		})
	}
}

func TestFalconWithoutCodeDoesNotStart(t *testing.T) {
	b := newBench(t, FaceConfig{})
	b.Write32(0x10a100, 2)
	require.Equal(t, uint32(cpuHalted), b.Read32(0x10a100))
	require.Zero(t, b.Read32(0x10a4d0))
	b.upload(0x10a000, ramp(64, 0), nil)
	b.Write32(0x10a104, 0x400)
	b.Write32(0x10a100, 2)
	require.Equal(t, uint32(cpuHalted), b.Read32(0x10a100), "no page at the boot vector")
}

func TestGPCCSBroadcast(t *testing.T) {
	b := newBench(t, FaceConfig{TPCs: []int{4, 4}})
	data := ramp(25, 0x1000)
	b.upload(0x41a000, ramp(64, 0), data)
	for _, base := range []uint32{0x41a000, 0x502000, 0x50a000} {
		require.Equal(t, data, b.data(base, 0, 25))
	}
	b.Write32(0x50a1c0, 8)
	b.Write32(0x50a1c4, 77)
	require.Equal(t, uint32(77), b.data(0x50a000, 8, 1)[0])
	require.Equal(t, data[2], b.data(0x502000, 8, 1)[0], "one controller's memory is not another's")
	require.Equal(t, data[2], b.data(0x41a000, 8, 1)[0], "a broadcast read is answered by the first")
	b.upload(0x512000, ramp(64, 0), data)
	require.Equal(t, make([]uint32, 25), b.data(0x512000, 0, 25), "a GPC that is not there has no memory")
}

// A port is a pointer into memory: any sequence of pointing, reading and writing,
// on all ports, against a map of words.
func TestFalconPortsProperty(t *testing.T) {
	b := newBench(t, FaceConfig{})
	const base = 0x409000
	size := uint32(fecsView.spec.dataSize())
	rapid.Check(t, func(t *rapid.T) {
		b.face.Reset()
		mem := map[uint32]uint32{}
		var port [falconPorts]uint32
		step := func(i int, inc uint32) {
			if port[i]&inc != 0 {
				port[i] = port[i]&^0xffff | (port[i]+4)&0xfffc
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"point": func(t *rapid.T) {
				i := rapid.IntRange(0, falconPorts-1).Draw(t, "port")
				v := rapid.Uint32Range(0, 3).Draw(t, "inc")<<24 |
					rapid.OneOf(rapid.Uint32Range(0, 64), rapid.Uint32Range(size-8, size+8), rapid.Uint32Range(0xfff0, 0xffff)).Draw(t, "addr")
				b.Write32(base+0x1c0+uint32(i)*8, v)
				port[i] = v &^ 3
			},
			"write": func(t *rapid.T) {
				i := rapid.IntRange(0, falconPorts-1).Draw(t, "port")
				v := rapid.Uint32().Draw(t, "value")
				b.Write32(base+0x1c4+uint32(i)*8, v)
				if a := port[i] & 0xfffc; a < size {
					mem[a] = v
				}
				step(i, 1<<24)
			},
			"read": func(t *rapid.T) {
				i := rapid.IntRange(0, falconPorts-1).Draw(t, "port")
				if got, want := b.Read32(base+0x1c4+uint32(i)*8), mem[port[i]&0xfffc]; got != want {
					t.Fatalf("port %d at %#x reads %#x, want %#x", i, port[i], got, want)
				}
				step(i, 1<<25)
			},
		})
	})
}
