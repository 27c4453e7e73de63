package texture

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// texelFormats are the layouts of texels by COMPONENTS_SIZES: the bits of each component, from the
// lowest bit of the texel up; "x" is nothing. Source: cl9097tex.h, rnndb/graph/g80_texture.xml.
var texelFormats = parseFormats(map[uint8]struct{ name, sizes string }{
	0x01: {"R32_G32_B32_A32", "32 32 32 32"},
	0x02: {"R32_G32_B32", "32 32 32"},
	0x03: {"R16_G16_B16_A16", "16 16 16 16"},
	0x04: {"R32_G32", "32 32"},
	0x05: {"R32_B24G8", "32 8 x24"},
	0x08: {"A8B8G8R8", "8 8 8 8"},
	0x09: {"A2B10G10R10", "10 10 10 2"},
	0x0c: {"R16_G16", "16 16"},
	0x0d: {"G8R24", "24 8"},
	0x0e: {"G24R8", "8 24"},
	0x0f: {"R32", "32"},
	0x10: {"BC6H_SF16", ""},
	0x11: {"BC6H_UF16", ""},
	0x12: {"A4B4G4R4", "4 4 4 4"},
	0x13: {"A5B5G5R1", "1 5 5 5"},
	0x14: {"A1B5G5R5", "5 5 5 1"},
	0x15: {"B5G6R5", "5 6 5"},
	0x16: {"B6G5R5", "5 5 6"},
	0x17: {"BC7U", ""},
	0x18: {"G8R8", "8 8"},
	0x1b: {"R16", "16"},
	0x1d: {"R8", "8"},
	0x1e: {"G4R4", "4 4"},
	0x1f: {"R1", ""},
	0x20: {"E5B9G9R9_SHAREDEXP", "shared"},
	0x21: {"BF10GF11RF11", "11 11 10"},
	0x22: {"G8B8G8R8", ""},
	0x23: {"B8G8R8G8", ""},
	0x24: {"DXT1", ""},
	0x25: {"DXT23", ""},
	0x26: {"DXT45", ""},
	0x27: {"DXN1", ""},
	0x28: {"DXN2", ""},
	0x29: {"Z24S8", "8 24"},
	0x2a: {"X8Z24", "24 x8"},
	0x2b: {"S8Z24", "24 8"},
	0x2f: {"ZF32", "32"},
	0x30: {"ZF32_X24S8", "32 8 x24"},
	0x3a: {"Z16", "16"},
})

// texelFormat is a row, parsed. Bytes are zero if it is not implemented.
type texelFormat struct {
	name       string
	bytes      uint64
	shared     bool // three fractions of 9 bits share an exponent
	components []place
}

// place is where a component lies in a texel.
type place struct{ shift, bits uint8 }

func parseFormats(rows map[uint8]struct{ name, sizes string }) (list [64]texelFormat) {
	for code, row := range rows {
		f, shift := texelFormat{name: row.name}, 0
		if row.sizes == "shared" {
			f.shared, shift = true, 32
		} else {
			for _, token := range strings.Fields(row.sizes) {
				bits, err := strconv.Atoi(strings.TrimPrefix(token, "x"))
				if err != nil {
					panic("texture: format " + row.name)
				}
				if token[0] != 'x' {
					f.components = append(f.components, place{uint8(shift), uint8(bits)})
				}
				shift += bits
			}
		}
		f.bytes = uint64(shift / 8)
		list[code] = f
	}
	return list
}

// format returns the layout of a header's texels.
func (h *Header) format() (*texelFormat, error) {
	f := &texelFormats[h.Format&63]
	switch {
	case f.name == "":
		return nil, fmt.Errorf("textures of format %#x", h.Format)
	case f.bytes == 0:
		return nil, fmt.Errorf("textures of format %s", f.name)
	}
	for i := range f.components {
		c, t := f.components[i], h.Types[i]
		if int(t) >= len(dataTypes) || dataTypes[t] == nil || t == float && smallFloats[c.bits].mantissa == 0 && c.bits != 32 {
			return nil, fmt.Errorf("textures of format %s with %d bits of data type %d", f.name, c.bits, t)
		}
	}
	return f, nil
}

// Data types of components.
const (
	signedNormal   = 1
	unsignedNormal = 2
	signedInteger  = 3
	unsignedInt    = 4
	float          = 7
)

// dataTypes turn the bits of a component into a float's, or into an integer, by data type.
var dataTypes = [8]func(v uint32, bits uint8) uint32{
	signedNormal: func(v uint32, bits uint8) uint32 {
		return math.Float32bits(float32(max(-1, float64(signExtend(v, bits))/float64(uint64(1)<<(bits-1)-1))))
	},
	unsignedNormal: func(v uint32, bits uint8) uint32 {
		return math.Float32bits(float32(float64(v) / float64(uint64(1)<<bits-1)))
	},
	signedInteger: func(v uint32, bits uint8) uint32 { return uint32(signExtend(v, bits)) },
	unsignedInt:   func(v uint32, _ uint8) uint32 { return v },
	float:         Float,
}

func signExtend(v uint32, bits uint8) int32 { return int32(v<<(32-bits)) >> (32 - bits) }

// smallFloats are the floats of less than 32 bits: bits of the fraction, and a sign. All have
// five bits of exponent.
var smallFloats = [33]struct {
	mantissa uint8
	signed   bool
}{16: {10, true}, 11: {6, false}, 10: {5, false}}

// Float turns a float of 32, 16, 11 or 10 bits into the bits of one of 32.
func Float(v uint32, bits uint8) uint32 {
	s := smallFloats[bits]
	if s.mantissa == 0 {
		return v
	}
	fraction, exponent := v&(1<<s.mantissa-1), int(v>>s.mantissa&31)
	var x float64
	switch exponent {
	case 31:
		x = math.Inf(1)
		if fraction != 0 {
			return 0x7fffffff // the one NaN of the hardware
		}
	case 0:
		x = math.Ldexp(float64(fraction), -14-int(s.mantissa))
	default:
		x = math.Ldexp(float64(fraction|1<<s.mantissa), exponent-15-int(s.mantissa))
	}
	if s.signed && v>>15 != 0 {
		x = -x
	}
	return math.Float32bits(float32(x))
}

// integer reports whether texels are integers: they are not filtered.
func (h *Header) integer() bool { return h.Types[0] == signedInteger || h.Types[0] == unsignedInt }

// Sources of the components of a colour.
const (
	sourceZero     = 0
	sourceFirst    = 2 // and three more
	sourceOneInt   = 6
	sourceOneFloat = 7
)

// colour is four floats' bits, or integers.
type colour [4]uint32

// stored returns a texel's components. Those that the format does not have are 0, 0, 0 and 1.
func (f *texelFormat) stored(h *Header, texel []byte, linear bool) (c colour) {
	c[3] = math.Float32bits(1)
	if f.shared {
		w := binary.LittleEndian.Uint32(texel)
		scale := math.Ldexp(1, int(w>>27)-15-9)
		for i := range 3 {
			c[i] = math.Float32bits(float32(float64(w>>(9*i)&0x1ff) * scale))
		}
		return c
	}
	for i, p := range f.components {
		var b [8]byte
		copy(b[:], texel[p.shift/32*4:])
		v := uint32(binary.LittleEndian.Uint64(b[:]) >> (p.shift % 32) & (1<<p.bits - 1))
		c[i] = dataTypes[h.Types[i]](v, p.bits)
		if h.SRGB != 0 && linear && i < 3 && h.Types[i] == unsignedNormal {
			c[i] = math.Float32bits(float32(FromSRGB(float64(math.Float32frombits(c[i])))))
		}
	}
	return c
}

// FromSRGB is the light that an sRGB component from 0 to 1 stands for.
func FromSRGB(x float64) float64 {
	if x <= 0.04045 {
		return x / 12.92
	}
	return math.Pow((x+0.055)/1.055, 2.4)
}

// swizzle gives X, Y, Z and W their sources.
func (h *Header) swizzle(from colour) (c colour) {
	for i, s := range h.Sources {
		switch {
		case s == sourceOneInt:
			c[i] = 1
		case s == sourceOneFloat:
			c[i] = math.Float32bits(1)
		case s >= sourceFirst:
			c[i] = from[s-sourceFirst]
		}
	}
	return c
}
