package texture

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// memory has the descriptors at address 0, a texture from 0x100 on.
type memory struct {
	bytes []byte
	loads int
}

const (
	samplerAt = 0x20
	textureAt = 0x100
)

func (m *memory) Load(addr uint64, to []byte) error {
	m.loads++
	if addr+uint64(len(to)) > uint64(len(m.bytes)) {
		return errors.New("not mapped")
	}
	copy(to, m.bytes[addr:])
	return nil
}

func (*memory) Store(uint64, []byte) error                              { panic("a store") }
func (*memory) Update(uint64, int, func(uint64) uint64) (uint64, error) { panic("an update") }

func (m *memory) put(addr uint64, words ...uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(m.bytes[addr+uint64(4*i):], w)
	}
}

// rig is a unit with one texture, and one sampler.
type rig struct {
	header  Header
	sampler Sampler
	mem     memory
	bound   sm.Textures
}

func newRig() *rig {
	r := &rig{
		header: Header{
			Format: 0x0f, Types: [4]uint32{float, float, float, float}, Sources: [4]uint32{2, 0, 0, sourceOneFloat},
			Low: textureAt, Target: twoD, Normalized: 1, Width: 8, Height: 8, Depth: 1,
		},
		sampler: Sampler{Mag: filterPoint, Min: filterPoint, Mip: mipNone, MaxLevel: 0xfff},
		mem:     memory{bytes: make([]byte, 1<<16)},
	}
	r.bound.Headers.Last, r.bound.Samplers = 0, sm.Pool{Address: samplerAt}
	r.bound.HeaderSlots[0].Bound, r.bound.SamplerSlots[0].Bound = true, true
	return r
}

// fill gives each texel of a float texture a value.
func (r *rig) fill(value func(level int, x, y, z, layer uint64) float32) {
	f, _ := r.header.format()
	im, err := r.header.image(f)
	if err != nil {
		panic(err)
	}
	for layer := range im.Layers {
		for level := range int(im.Last) + 1 {
			for z := range im.at(level, 2) {
				for y := range im.at(level, 1) {
					for x := range im.at(level, 0) {
						r.mem.put(im.At(level, x, y, z, layer), math.Float32bits(value(level, x, y, z, layer)))
					}
				}
			}
		}
	}
}

// ask executes an instruction in lanes with the same operands.
func (r *rig) ask(t require.TestingT, text string, a, b [4]uint32) (interp.Texels, error) {
	words, err := isa.Assemble(text)
	require.NoError(t, err)
	in, err := isa.Decode(words[0], 0)
	require.NoError(t, err)
	h, s := encode(headerFields, &r.header), encode(samplerFields, &r.sampler)
	r.mem.put(0, h[:]...)
	r.mem.put(samplerAt, s[:]...)
	q := interp.Texels{Inst: &in, Lanes: 5}
	for lane := range interp.Lanes {
		for i := range a {
			q.A[i][lane], q.B[i][lane] = a[i], b[i]
		}
	}
	u := Unit{Memory: &r.mem, Bound: &r.bound}
	err = u.Texture(&q)
	return q, err
}

// get is ask, for a result.
func (r *rig) get(t require.TestingT, text string, a, b [4]uint32) colour {
	q, err := r.ask(t, text, a, b)
	require.NoError(t, err)
	var c [3]colour
	for i := range 4 {
		c[0][i], c[1][i], c[2][i] = q.Out[i][0], q.Out[i][1], q.Out[i][2]
	}
	require.Equal(t, c[0], c[2])
	require.Zero(t, c[1], "a lane that does not run")
	return c[0]
}

func floats(v ...float64) (b [4]uint32) {
	for i, x := range v {
		b[i] = math.Float32bits(float32(x))
	}
	return b
}

func first(c colour) float64 { return float64(math.Float32frombits(c[0])) }

const (
	texZero = "tex t lzero all dfp $r0:$r1:$r2:$r3 %s $t0 $s0 %s ()"
	texLod  = "tex t llod all dfp $r0:$r1:$r2:$r3 %s $t0 $s0 %s $r8"
)
