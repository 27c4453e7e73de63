package engine

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// TestColorFormats: a pixel of any format that is unpacked and packed is the same again, but for
// bits that are no component.
func TestColorFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for code := range colorFormats {
			f := &colorFormats[code]
			if f.bytes == 0 {
				continue
			}
			var p pixel
			copy(p[:f.bytes], rapid.SliceOfN(rapid.Byte(), int(f.bytes), int(f.bytes)).Draw(t, "pixel"))
			for _, c := range f.components {
				x := math.Float32frombits(c.decode(p.get(c)))
				if c.stored == 'f' && x != x || c.stored == 'n' && p.get(c) == 1<<(c.bits-1) {
					p.put(c, 0) // NaN, and the second -1
				}
			}
			got, mask := f.pack(f.unpack(&p), 0xf)
			for i := range p {
				require.Equal(t, p[i]&mask[i], got[i], "format %#x", code)
			}
			_, some := f.pack(f.unpack(&p), 0b0101)
			for _, c := range f.components {
				require.Equal(t, c.color%2 == 0, some.get(c) != 0)
			}
		}
	})
	f := math.Float32bits
	for code, want := range map[uint8][]byte{
		0xd5: {255, 0, 128, 64}, 0xcf: {128, 0, 255, 64}, 0xd7: {127, 129, 64, 32}, 0xe8: {0x10, 0xf8}, 0xf7: {64},
		0xd6: {255, 0, 188, 64}, 0xde: {0x00, 0x3c, 0x00, 0xc0},
	} {
		p, _ := colorFormats[code].pack([4]uint32{f(1), f(-2), f(0.5), f(0.25)}, 0xf)
		require.Equal(t, want, p[:colorFormats[code].bytes], "format %#x", code)
	}
	for bits, mantissa := range map[uint8]int{10: 5, 11: 6} {
		for _, x := range []float64{0, 1e-9, 3e-8, 7e-6, 1e-5, 0.1, 1, 1.0 + 3.0/128, 3.14, 65000, 1e9} {
			// The nearest multiple of the last place, up to the largest number.
			place := math.Ldexp(1, max(-15, math.Ilogb(x))-mantissa)
			if x < 1.0/(1<<14) {
				place = math.Ldexp(1, -14-mantissa)
			}
			want := min(math.RoundToEven(x/place)*place, math.Ldexp(2-math.Ldexp(1, -mantissa), 15))
			c := component{stored: 'f', bits: bits}
			require.EqualValues(t, want, math.Float32frombits(c.decode(c.encode(f(float32(x))))), "%g in %d bits", x, bits)
		}
	}
	p, _ := colorFormats[0xd8].pack([4]uint32{200, 1<<32 - 200, 5, 1<<32 - 5}, 0xf)
	require.Equal(t, []byte{127, 128, 5, 251}, p[:4])
	p, _ = colorFormats[0xd9].pack([4]uint32{200, 256, 1 << 31, 0}, 0xf)
	require.Equal(t, []byte{200, 255, 255, 0}, p[:4])
}

// TestHalf: halves convert without loss, and what lies between two goes to the nearer, or to the
// even one.
func TestHalf(t *testing.T) {
	half := func(h uint16) float32 { return math.Float32frombits(texture.Float(uint32(h), 16)) }
	for h := uint16(0); h < 0x7c00; h++ {
		x, next := half(h), float32(65536)
		if h < 0x7bff {
			next = half(h + 1)
		}
		require.Equal(t, h, halfFrom(x))
		require.Equal(t, h|0x8000, halfFrom(-x)|0x8000)
		middle := (x + next) / 2
		require.Equal(t, h+h&1, halfFrom(middle))
		require.Equal(t, h, halfFrom(math.Nextafter32(middle, 0)))
		require.Equal(t, h+1, halfFrom(math.Nextafter32(middle, 1e9)))
	}
	require.EqualValues(t, 0x7c00, halfFrom(float32(math.Inf(1))))
	require.EqualValues(t, 0x7e00, halfFrom(float32(math.NaN())))
	require.True(t, math.IsInf(float64(half(0xfc00)), -1))
}
