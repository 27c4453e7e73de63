package engine

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A picture in a test's memory: of a target in blocks or lines, that M2MF brings into lines.
type picture struct {
	va            uint64
	width, height uint32
	code          uint8
	pitch         uint32 // of lines, 0 for blocks
	high          uint32 // log2 of a block's GOBs
}

func drawPicture(t *rapid.T, name string, va uint64) picture {
	p := picture{
		va: va, width: rapid.Uint32Range(1, 90).Draw(t, name+" width"), height: rapid.Uint32Range(1, 40).Draw(t, name+" height"),
		code: rapid.SampledFrom([]uint8{0xc0, 0xc2, 0xcf, 0xd5, 0xd7, 0xe8, 0xe5, 0xf3, 0xca, 0xcb}).Draw(t, name+" format"),
		high: rapid.Uint32Range(0, 3).Draw(t, name+" block"),
	}
	if rapid.Bool().Draw(t, name+" in lines") {
		p.pitch = p.width*p.bytes() + rapid.Uint32Range(0, 70).Draw(t, name+" pitch")
	}
	return p
}

func (p *picture) bytes() uint32 { return uint32(colorFormats[p.code].bytes) }

// load brings the picture into lines without gaps, and store the reverse.
func (p *picture) copy(t require.TestingT, env *Env, in bool, lines uint64) {
	var g GR
	side := map[bool][]uint32{true: {0x204, 0x30c, 0x314, 1 << 4}, false: {0x220, 0x238, 0x318, 1 << 8}}
	from, to := side[in], side[!in]
	n := p.width * p.bytes()
	flags := to[3]
	g.send(t, env, 0x9039, writes{
		{from[0], p.high << 4}, {from[0] + 4, n}, {from[0] + 8, p.height}, {from[0] + 12, 1},
		{from[1], uint32(p.va >> 32)}, {from[1] + 4, uint32(p.va)}, {to[1], uint32(lines >> 32)}, {to[1] + 4, uint32(lines)},
		{from[2], p.pitch}, {to[2], n}, {0x31c, n}, {0x320, p.height},
	})
	if p.pitch != 0 {
		flags |= from[3]
	}
	g.send(t, env, 0x9039, writes{{0x300, flags}})
}

func (p *picture) load(t require.TestingT, env *Env) []byte {
	const lines = 0x7000_0000
	p.copy(t, env, true, lines)
	out := make([]byte, p.width*p.height*p.bytes())
	require.Nil(t, read(env, lines, out))
	return out
}

func (p *picture) store(t require.TestingT, env *Env, data []byte) {
	const lines = 0x7100_0000
	var pos uint8
	for i := 0; i < len(data); i += 128 {
		pos = 0
		require.Nil(t, put(env, lines+uint64(i), data[i:min(i+128, len(data))], &pos))
	}
	p.copy(t, env, false, lines)
}

func pixelMemory() *testMemory {
	m := newTestMemory()
	for _, at := range []uint64{0x1000_0000, 0x2000_0000, 0x7000_0000, 0x7100_0000} {
		m.mapRange(at, 256<<10)
	}
	return m
}

// clipped reports whether a pixel is in a range of first and size.
func clipped(at, first, size uint32) bool { return at >= first && at-first < size }

// TestClear: the pixels inside of the clip get the colour, in the components that were asked for,
// and no other byte changes.
func TestClear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := newEnv(pixelMemory())
		env.Budget = rapid.IntRange(1, 1<<16).Draw(t, "budget")
		p := drawPicture(t, "target", 0x1000_0000)
		want := make([]byte, p.width*p.height*p.bytes())
		for i := range want {
			want[i] = byte(i*7 + i>>8)
		}
		p.store(t, env, want)
		small := rapid.Uint32Range(0, 60)
		cx, cy, cw, ch := small.Draw(t, "x"), small.Draw(t, "y"), small.Draw(t, "w"), small.Draw(t, "h")
		which := rapid.Uint32Range(0, 15).Draw(t, "components")
		color := [4]uint32{math.Float32bits(0.75), math.Float32bits(-1), math.Float32bits(0.5), math.Float32bits(1)}
		var g GR
		width, layout := p.width, p.high<<4
		if p.pitch != 0 {
			width, layout = p.pitch, 1<<12
		}
		g.send(t, env, 0x9097, writes{
			{0x840, 0}, {0x844, uint32(p.va)}, {0x848, width}, {0x84c, p.height}, {0x850, uint32(p.code)}, {0x854, layout}, {0x85c, 0x100},
			{0xd80, color[0]}, {0xd84, color[1]}, {0xd88, color[2]}, {0xd8c, color[3]},
			{0xff4, cw<<16 | cx}, {0xff8, ch<<16 | cy}, {0x10f8, 0x100}, {0xe00, 1}, {0xe04, 50<<16 | 2}, {0xe08, 30<<16 | 1},
			{0x121c, 1<<4 | 1}, {0x19d0, which << 2},
		})
		value, mask := colorFormats[p.code].pack(color, which)
		for y := range p.height {
			for x := range p.width {
				if clipped(x, cx, cw) && clipped(y, cy, ch) && clipped(x, 2, 48) && clipped(y, 1, 29) {
					at := want[(y*p.width+x)*p.bytes():][:p.bytes()]
					for i := range at {
						at[i] = at[i]&^mask[i] | value[i]
					}
				}
			}
		}
		require.True(t, bytes.Equal(want, p.load(t, env)))
	})
}

// TestBlit: each pixel of the destination is that of the source, converted, mirrored and clipped.
func TestBlit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := newEnv(pixelMemory())
		env.Budget = rapid.IntRange(1, 1<<16).Draw(t, "budget")
		src, dst := drawPicture(t, "source", 0x1000_0000), drawPicture(t, "destination", 0x2000_0000)
		if colorFormats[src.code].integer != colorFormats[dst.code].integer || rapid.Bool().Draw(t, "same") {
			dst.code = src.code
			dst.pitch = 0
		}
		from, to := &colorFormats[src.code], &colorFormats[dst.code]
		pixels := make([]byte, src.width*src.height*src.bytes())
		for i := range pixels {
			pixels[i] = byte(i*7 + i>>8)
		}
		src.store(t, env, pixels)
		small := rapid.Int64Range(0, 60)
		x, y, w, h := small.Draw(t, "x"), small.Draw(t, "y"), small.Draw(t, "w"), small.Draw(t, "h")
		u, v := rapid.Int64Range(-5, 60).Draw(t, "u"), rapid.Int64Range(-5, 60).Draw(t, "v")
		dx, dy := rapid.SampledFrom([]int64{1, -1}).Draw(t, "dx"), rapid.SampledFrom([]int64{1, -1}).Draw(t, "dy")
		var list writes
		for at, p := range map[uint32]picture{0x200: dst, 0x230: src} {
			list = append(list, writes{
				{at, uint32(p.code)}, {at + 4, min(p.pitch, 1)}, {at + 8, p.high << 4}, {at + 12, 1}, {at + 0x14, p.pitch},
				{at + 0x18, p.width}, {at + 0x1c, p.height}, {at + 0x20, 0}, {at + 0x24, uint32(p.va)},
			}...)
		}
		var g GR
		g.send(t, env, 0x902d, append(list, writes{
			{0x280, 3}, {0x284, 2}, {0x288, 40}, {0x28c, 20}, {0x290, 1}, {0x2ac, 3},
			{0x8b0, uint32(x)}, {0x8b4, uint32(y)}, {0x8b8, uint32(w)}, {0x8bc, uint32(h)},
			{0x8c0, 0}, {0x8c4, uint32(dx)}, {0x8c8, 0}, {0x8cc, uint32(dy)}, {0x8d0, 0}, {0x8d4, uint32(u)}, {0x8d8, 0}, {0x8dc, uint32(v)},
		}...))
		require.Empty(t, env.Stats.NotExecuted())
		got := dst.load(t, env)
		for j := range int64(dst.height) {
			for i := range int64(dst.width) {
				var want pixel
				if i >= x && i < x+w && j >= y && j < y+h && clipped(uint32(i), 3, 40) && clipped(uint32(j), 2, 20) {
					su := max(0, min(u+(i-x)*dx, int64(src.width)-1))
					sv := max(0, min(v+(j-y)*dy, int64(src.height)-1))
					copy(want[:], pixels[(sv*int64(src.width)+su)*int64(src.bytes()):][:src.bytes()])
					if src.code != dst.code {
						want, _ = to.pack(from.unpack(&want), 0xf)
					}
				}
				n := int64(dst.bytes())
				require.Equal(t, want[:n], got[(j*int64(dst.width)+i)*n:][:n], "pixel %d, %d", i, j)
			}
		}
	})
}

// TestPixelsNotExecuted: what is not carried out is counted, and changes nothing.
func TestPixelsNotExecuted(t *testing.T) {
	target := writes{{0x808, 8}, {0x80c, 8}, {0x810, 0xd5}, {0xff4, 8 << 16}, {0xff8, 8 << 16}}
	clears := map[string]writes{
		"zeta": {{0x19d0, 0x3f}}, "viewport": {{0x10f8, 1 << 12}, {0x19d0, 0x3c}}, "format": {{0x810, 0xe1}, {0x19d0, 0x3c}},
	}
	sides := writes{{0x200, 0xd5}, {0x218, 8}, {0x21c, 8}, {0x230, 0xd5}, {0x248, 8}, {0x24c, 8}, {0x2ac, 3}, {0x8b8, 8}, {0x8bc, 8}, {0x8c4, 1}, {0x8cc, 1}}
	blits := map[string]writes{
		"scaled": {{0x8c4, 2}}, "between pixels": {{0x8d0, 5}}, "blended": {{0x2ac, 6}}, "a colour key": {{0x29c, 1}},
		"of integers to others": {{0x230, 0xd9}}, "format": {{0x200, 0x10}}, "of nothing": {{0x248, 0}},
	}
	for name, list := range clears {
		var g GR
		env := newEnv(newTestMemory())
		g.send(t, env, 0x9097, append(target[:len(target):len(target)], list...))
		require.Equal(t, []NotExecuted{{0x9097, "CLEAR_SURFACE", 1}}, env.Stats.NotExecuted(), name)
	}
	for name, list := range blits {
		var g GR
		env := newEnv(newTestMemory())
		g.send(t, env, 0x902d, append(append(sides[:len(sides):len(sides)], list...), [2]uint32{0x8dc, 0}))
		require.Equal(t, []NotExecuted{{0x902d, "PIXELS_FROM_MEMORY_SRC_Y0_INT", 1}}, env.Stats.NotExecuted(), name)
	}
}
