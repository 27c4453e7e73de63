package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// Where fuzzUnits has descriptors and the instruction, in a page that shows everywhere.
const (
	fuzzHeaders  = 0
	fuzzSamplers = 0x200
	fuzzProgram  = 0x400
)

// TestHostileUnits: random instructions for textures and surfaces, with descriptors that mostly fit,
// end or fail. Some of each form do end.
func TestHostileUnits(t *testing.T) {
	random := rand.New(rand.NewPCG(0x7e, 0xd4))
	m := new(fuzzMemory)
	env := newEnv(m)
	for _, form := range isa.Forms() {
		switch form.Op {
		case isa.Tex, isa.TexFetch, isa.TexGather, isa.TexLod, isa.TexQuery, isa.TexGrad,
			isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfAddress, isa.SurfRed:
		default:
			continue
		}
		succeeded := 0
		for range scale.Of(1000, 50000) {
			word := random.Uint64()
			if random.IntN(2) == 0 {
				word &= random.Uint64() | 7<<51 // fewer modifiers, of any target
			}
			in, err := decodeDefined(form.Value | word&^form.Mask&^(15<<10|1<<4) | 7<<10) // no guard, no join
			if err != nil {
				continue
			}
			if random.IntN(32) == 0 {
				m.holes = random.Uint64()
			}
			if fuzzUnits(random, env, m, in.Word) == nil {
				succeeded++
			}
			m.holes = 0
		}
		require.Greater(t, succeeded, 10, form.Name())
	}
}

// decodeDefined decodes a word without its reserved bits.
func decodeDefined(word uint64) (isa.Inst, error) {
	for {
		in, err := isa.Decode(word, 0)
		var undefined *isa.UndefinedError
		var reserved uint64
		if !errors.As(err, &undefined) {
			return in, err
		}
		if n, _ := fmt.Sscanf(undefined.Reason, "reserved bits 0x%x", &reserved); n == 0 || word&reserved == 0 {
			return in, err
		}
		word &^= reserved
	}
}

// fuzzUnits executes an instruction in some threads with random registers.
func fuzzUnits(random *rand.Rand, env *Env, m *fuzzMemory, word uint64) error {
	kinds := 1 + random.IntN(3) // also of numbers that are not small
	value := func() uint32 {
		return []uint32{random.Uint32N(sm.Surfaces), math.Float32bits(random.Float32()*4 - 2), random.Uint32()}[random.IntN(kinds)]
	}
	l := sm.Launch{Region: fuzzProgram, Program: fuzzProgram, Block: [3]uint32{8, 1, 1}, Grid: [3]uint32{1, 1, 1}, Registers: maxRegisters}
	l.Textures = sm.Textures{
		Headers: sm.Pool{Address: fuzzHeaders, Last: 8}, Samplers: sm.Pool{Address: fuzzSamplers, Last: 8},
		Linked: random.IntN(2) == 0, Seamless: random.IntN(2) == 0,
	}
	// Types of textures by isa.Target; the pool has one of each type.
	kind := []uint32{0, 4, 1, 5, 2, 6, 3, 8}[word>>51&7]
	if random.IntN(8) == 0 {
		kind = random.Uint32N(9)
	}
	for i := range l.Textures.HeaderSlots {
		l.Textures.HeaderSlots[i], l.Textures.SamplerSlots[i] = sm.Slot{Index: kind, Bound: true}, sm.Slot{Index: kind, Bound: true}
	}
	size := func() uint32 { return []uint32{random.Uint32N(40), random.Uint32()}[random.IntN(2)] }
	for i := range uint32(9) {
		format := []uint32{0x1d | 4<<6, 0x0f | 7<<6 | 7<<9 | 7<<12 | 7<<15}[random.IntN(2)] // R8 of integers, R32 of floats
		width, blocks := size()&(1<<30-1), random.Uint32N(6)<<22|random.Uint32N(6)<<25
		header := [8]uint32{
			format | 2<<18 | 7<<27, random.Uint32(), random.Uint32N(1<<8) | i<<14 | bit(i == 6)<<18 | blocks | random.Uint32()&(1<<31),
			random.Uint32(), width, width&0xffff | random.Uint32()&^0xffff, random.Uint32(), random.Uint32N(1 << 8),
		}
		if i != 3 && i != 8 { // cubes are as high as they are wide
			header[5] = size()&0xffff | random.Uint32()&^0xffff
		}
		if random.IntN(8) == 0 {
			header[random.IntN(8)] = random.Uint32()
		}
		for j, w := range header {
			binary.LittleEndian.PutUint32(m.page[fuzzHeaders+32*int(i)+4*j:], w)
			sampler := random.Uint32()
			if j == 0 {
				sampler &^= 7 << 20 // anisotropy
			}
			binary.LittleEndian.PutUint32(m.page[fuzzSamplers+32*int(i)+4*j:], sampler)
		}
	}
	for i := range l.Surfaces {
		l.Surfaces[i] = sm.Surface{
			Address: random.Uint64() & vaMask, Width: size(), Height: size() & 0x1ffff, Linear: random.IntN(2) == 0,
			Format: []uint8{0xc2, 0xd5, 0xe5, 0xf3, uint8(random.Uint32())}[random.IntN(5)], Zeta: random.IntN(16) == 0, Log2Block: [2]uint8{0, uint8(random.Uint32N(16))},
		}
	}
	binary.LittleEndian.PutUint64(m.page[fuzzProgram:], word)

	cache := env.GridCache
	cache.env, cache.description = env, &l
	cache.launch++
	r := &cache.workers[0]
	r.prepare()
	block := interp.NewBlock(&r.launch, [3]uint32{})
	for i := range block.Warps[0].Regs[:maxRegisters] {
		for lane := range 8 {
			block.Warps[0].Regs[i][lane] = value()
		}
	}
	if _, fault := r.executor.Step(block, 1); fault != nil {
		return fault
	}
	return nil
}
