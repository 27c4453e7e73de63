package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestHostileSurfaces: whatever a surface, an instruction and its coordinates are, the instruction ends
// or fails. Some of each kind do end.
func TestHostileSurfaces(t *testing.T) {
	random := rand.New(rand.NewPCG(0x7e, 0xd4))
	m := new(fuzzMemory)
	env := newEnv(m)
	r := NewUnits(oneProcessor(env).memory, nil, new([sm.Surfaces]sm.Surface))
	size := func() uint32 { return []uint32{random.Uint32N(40), random.Uint32()}[random.IntN(2)] }
	ended := map[isa.Op]int{}
	for range scale.Of(10000, 500000) {
		r.surfaces[0] = sm.Surface{
			Address: random.Uint64() & vaMask, Width: size(), Height: size() & 0x1ffff, Linear: random.IntN(2) == 0,
			Format: []uint8{0xc2, 0xd5, 0xe5, 0xf3, uint8(random.Uint32())}[random.IntN(5)], Zeta: random.IntN(16) == 0,
			Log2Block: [2]uint8{0, uint8(random.Uint32N(16))},
		}
		inst := isa.Inst{Op: []isa.Op{isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfAddress, isa.SurfRed}[random.IntN(5)]}
		inst.Mod[isa.Width], inst.Mod[isa.Dims] = uint8(random.UintN(isa.B128+1)), uint8(random.UintN(4))
		m.holes = random.Uint64() & random.Uint64()
		if r.Surface(&interp.Pixel{Inst: &inst, Image: random.Uint32N(16) / 15, At: [4]uint32{size(), size(), size()}}) == nil {
			ended[inst.Op]++
		}
	}
	for _, op := range []isa.Op{isa.SurfLoad, isa.SurfStore, isa.SurfStoreFormat, isa.SurfAddress} {
		require.Greater(t, ended[op], 10, op)
	}
}
