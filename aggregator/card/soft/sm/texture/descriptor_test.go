package texture

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// roundTrip: no two rows share a bit, and every bit of a row is kept.
func roundTrip[T any](t *rapid.T, rows []field[T]) {
	var covered, w Words
	for _, r := range rows {
		mask := uint32(uint64(1)<<r.width-1) << r.low
		require.Zero(t, covered[r.word]&mask, r.name)
		covered[r.word] |= mask
		if r.keep != nil {
			w[r.word] |= mask & rapid.Uint32().Draw(t, r.name)
		}
	}
	var v T
	require.NoError(t, decode(rows, &w, &v))
	require.Equal(t, w, encode(rows, &v))
}

func TestDescriptorRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, headerFields)
		roundTrip(t, samplerFields)
	})
	require.ErrorContains(t, decode(headerFields, &Words{2: 1 << 19}, new(Header)), "GOBS_PER_BLOCK_WIDTH 1")
}

// stored is how a component of a data type is kept: the reverse of dataTypes.
func stored(t *rapid.T, v uint32, typ uint32, bits uint8) uint32 {
	x, whole := float64(math.Float32frombits(v)), float64(uint64(1)<<bits-1)
	mask := uint32(uint64(1)<<bits - 1)
	switch typ {
	case signedNormal:
		return uint32(int64(math.RoundToEven(x*float64(uint64(1)<<(bits-1)-1)))) & mask
	case unsignedNormal:
		return uint32(uint64(math.RoundToEven(x * whole)))
	case float:
		if bits == 32 {
			return v
		}
		sign, mantissa := uint32(0), map[uint8]int{16: 10, 11: 6, 10: 5}[bits]
		if bits == 16 {
			sign = v >> 31 << 15
		}
		x = math.Abs(x)
		if math.IsInf(x, 0) {
			return sign | 31<<mantissa
		}
		fraction, exponent := math.Frexp(x) // of 0.5 to 1
		if exponent < -13 || x == 0 {
			return sign | uint32(math.Ldexp(x, 14+mantissa))
		}
		return sign | uint32(exponent+14)<<mantissa | uint32(math.Ldexp(fraction*2-1, mantissa))
	}
	return v & mask
}

// TestFormats: from a texel's components follow its bits.
func TestFormats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{Format: rapid.SampledFrom(codes(false)).Draw(t, "format")}
		for i := range h.Types {
			h.Types[i] = rapid.SampledFrom([]uint32{signedNormal, unsignedNormal, signedInteger, unsignedInt, float}).Draw(t, "type")
		}
		f, err := h.format()
		if err != nil {
			require.ErrorContains(t, err, formatName(h.Format))
			return
		}
		texel := rapid.SliceOfN(rapid.Byte(), int(f.bytes), int(f.bytes)).Draw(t, "texel")
		c := f.stored(&h, texel, false)
		at := 0
		for i, p := range f.components {
			require.Equal(t, 0, at-int(p.shift)) // components follow each other
			at += int(p.bits)
			var bits uint32
			for b := range p.bits {
				n := int(p.shift + b)
				bits |= uint32(texel[n/8]>>(n%8)&1) << b
			}
			v := math.Float32frombits(c[i])
			switch typ := h.Types[i]; {
			case typ == float && v != v, (typ == signedNormal || typ == unsignedNormal) && p.bits > 24:
			case typ == signedNormal && bits == 1<<(p.bits-1): // the lowest number is -1 too
				require.EqualValues(t, -1, v)
			default:
				require.Equal(t, bits, stored(t, c[i], typ, p.bits), "component %d", i)
			}
		}
	})
	shared := texelFormats[0x20].stored(&Header{Format: 0x20}, []byte{0x80, 0x01, 0, 0x80}, true) // exponent 16
	require.Equal(t, []float32{1.5, 0}, []float32{math.Float32frombits(shared[0]), math.Float32frombits(shared[1])})
	for _, code := range codes(true) {
		_, err := (&Header{Format: code}).format()
		require.ErrorContains(t, err, "textures of format "+formatName(code))
	}
}

func formatName(code uint32) string { return texelFormats[code].name }

// codes returns the formats that are described only, or the others.
func codes(missing bool) (list []uint32) {
	for i, f := range texelFormats {
		if f.name != "" && (f.bytes == 0) == missing && !f.shared {
			list = append(list, uint32(i))
		}
	}
	return list
}
