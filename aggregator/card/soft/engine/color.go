package engine

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/texture"
)

// colorFormats are the formats of colours in memory, by their codes in the 2D and 3D classes:
// components from the lowest bit up, each with how it is stored and its bits. "x" is nothing.
var colorFormats = parseFormats(map[uint8]string{
	0xc0: "rf32 gf32 bf32 af32", 0xc1: "rs32 gs32 bs32 as32", 0xc2: "ru32 gu32 bu32 au32",
	0xc3: "rf32 gf32 bf32 x32", 0xc4: "rs32 gs32 bs32 x32", 0xc5: "ru32 gu32 bu32 x32",
	0xc6: "r16 g16 b16 a16", 0xc7: "rn16 gn16 bn16 an16", 0xc8: "rs16 gs16 bs16 as16", 0xc9: "ru16 gu16 bu16 au16",
	0xca: "rf16 gf16 bf16 af16", 0xcb: "rf32 gf32", 0xcc: "rs32 gs32", 0xcd: "ru32 gu32", 0xce: "rf16 gf16 bf16 x16",
	0xcf: "b8 g8 r8 a8", 0xd0: "bl8 gl8 rl8 a8", 0xd1: "r10 g10 b10 a2", 0xd2: "ru10 gu10 bu10 au2",
	0xd5: "r8 g8 b8 a8", 0xd6: "rl8 gl8 bl8 a8", 0xd7: "rn8 gn8 bn8 an8", 0xd8: "rs8 gs8 bs8 as8", 0xd9: "ru8 gu8 bu8 au8",
	0xda: "r16 g16", 0xdb: "rn16 gn16", 0xdc: "rs16 gs16", 0xdd: "ru16 gu16", 0xde: "rf16 gf16", 0xdf: "b10 g10 r10 a2", 0xe0: "rf11 gf11 bf10",
	0xe3: "rs32", 0xe4: "ru32", 0xe5: "rf32", 0xe6: "b8 g8 r8 x8", 0xe7: "bl8 gl8 rl8 x8", 0xe8: "b5 g6 r5", 0xe9: "b5 g5 r5 a1",
	0xea: "r8 g8", 0xeb: "rn8 gn8", 0xec: "rs8 gs8", 0xed: "ru8 gu8", 0xee: "r16", 0xef: "rn16", 0xf0: "rs16", 0xf1: "ru16", 0xf2: "rf16",
	0xf3: "r8", 0xf4: "rn8", 0xf5: "rs8", 0xf6: "ru8", 0xf7: "a8", 0xf8: "b5 g5 r5 x1", 0xf9: "r8 g8 b8 x8", 0xfa: "rl8 gl8 bl8 x8",
})

// colorFormat is a pixel's layout.
type colorFormat struct {
	bytes      uint8 // of a pixel; 0 is no format that is known
	integer    bool
	components []component
}

type component struct {
	color       uint8 // 0 to 3 are R, G, B and A
	stored      byte  // 'f'loat, 's'igned, 'u'nsigned, signed 'n'ormal, s'l' for sRGB, 0 for normal
	shift, bits uint8
}

func parseFormats(rows map[uint8]string) (list [256]colorFormat) {
	for code, row := range rows {
		f, shift := &list[code], 0
		for _, token := range strings.Fields(row) {
			c := component{color: uint8(strings.IndexByte("rgba", token[0])), shift: uint8(shift)}
			digits := token[1:]
			if strings.IndexByte("fsunl", digits[0]) >= 0 {
				c.stored, digits = digits[0], digits[1:]
			}
			bits, err := strconv.Atoi(digits)
			if err != nil {
				panic("engine: colour format " + row)
			}
			c.bits = uint8(bits)
			shift += bits
			f.integer = f.integer || c.stored == 's' || c.stored == 'u'
			if token[0] != 'x' {
				f.components = append(f.components, c)
			}
		}
		f.bytes = uint8(shift / 8)
	}
	return list
}

// pixel is a pixel in memory; the longest has 16 bytes.
type pixel [16]byte

func (p *pixel) put(c component, v uint32) {
	word := p[c.shift/32*4:][:4]
	shift, field := c.shift%32, uint32(1)<<c.bits-1
	if c.bits == 32 {
		field = ^uint32(0)
	}
	w := binary.LittleEndian.Uint32(word)
	binary.LittleEndian.PutUint32(word, w&^(field<<shift)|v&field<<shift)
}

func (p *pixel) get(c component) uint32 {
	return binary.LittleEndian.Uint32(p[c.shift/32*4:]) >> (c.shift % 32) & uint32(1<<uint64(c.bits)-1)
}

// pack stores a colour: four floats, or four integers if the format has those. mask has all bits
// of the components in which.
func (f *colorFormat) pack(color [4]uint32, which uint32) (p, mask pixel) {
	for _, c := range f.components {
		if which>>c.color&1 != 0 {
			p.put(c, c.encode(color[c.color]))
			mask.put(c, ^uint32(0))
		}
	}
	return p, mask
}

// unpack is the reverse. Components that the format does not have are 0, and A is 1.
func (f *colorFormat) unpack(p *pixel) (color [4]uint32) {
	color[3] = math.Float32bits(1)
	if f.integer {
		color[3] = 1
	}
	for _, c := range f.components {
		color[c.color] = c.decode(p.get(c))
	}
	return color
}

// encode returns a component's bits. Integers and normals saturate; NaN is zero in normals.
func (c component) encode(v uint32) uint32 {
	x := float64(math.Float32frombits(v))
	top := float64(uint64(1)<<c.bits - 1)
	clamp := func(low float64) float64 {
		if x != x {
			return 0
		}
		return max(low, min(x, 1))
	}
	switch c.stored {
	case 'f':
		switch c.bits {
		case 16:
			return uint32(halfFrom(math.Float32frombits(v)))
		case 32:
			return v
		}
		return positiveFrom(math.Float32frombits(v), c.bits)
	case 'u':
		return uint32(min(uint64(v), 1<<c.bits-1))
	case 's':
		limit := int64(1) << (c.bits - 1)
		return uint32(max(-limit, min(int64(int32(v)), limit-1)))
	case 'n':
		return uint32(int32(math.RoundToEven(clamp(-1) * float64(uint64(1)<<(c.bits-1)-1))))
	case 'l':
		x = clamp(0)
		if x <= 0.0031308 {
			x *= 12.92
		} else {
			x = 1.055*math.Pow(x, 1/2.4) - 0.055
		}
	}
	return uint32(math.RoundToEven(clamp(0) * top))
}

func (c component) decode(v uint32) uint32 {
	signed := int32(v<<(32-c.bits)) >> (32 - c.bits)
	x := float64(v) / float64(uint64(1)<<c.bits-1)
	switch c.stored {
	case 'f':
		return texture.Float(v, c.bits)
	case 'u':
		return v
	case 's':
		return uint32(signed)
	case 'n':
		x = max(-1, float64(signed)/float64(uint64(1)<<(c.bits-1)-1))
	case 'l':
		x = texture.FromSRGB(x)
	}
	return math.Float32bits(float32(x))
}

// halfFrom rounds to the nearest half, ties to even.
func halfFrom(f float32) uint16 {
	sign := uint16(math.Float32bits(f) >> 16 & 0x8000)
	switch x := math.Abs(float64(f)); {
	case x != x:
		return sign | 0x7e00
	case x >= 65520:
		return sign | 0x7c00
	case x < 1.0/(1<<14): // multiples of 2^-24
		return sign | uint16(math.RoundToEven(x*(1<<24)))
	default:
		m, e := math.Frexp(x) // x = m * 2^e, m from 0.5 to 1
		return sign | uint16(int(math.RoundToEven(m*2048))-1024+(e+14)<<10)
	}
}

// positiveFrom rounds to the nearest float of 11 or 10 bits, which are a half's without its sign and
// its last bits. Negative numbers are zero, and only infinity is.
func positiveFrom(f float32, bits uint8) uint32 {
	cut := 15 - bits
	if f <= 0 {
		return 0
	}
	h := uint32(halfFrom(f))
	switch {
	case h >= 0x7c00 && f <= math.MaxFloat32:
		return 0x7bff >> cut
	case h >= 0x7c00:
		return h >> cut
	}
	h += 1<<(cut-1) - 1 + h>>cut&1
	return min(h, 0x7bff) >> cut
}
