package texture

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// warp is an instruction for a whole warp.
func warp(mode uint32) (*Unit, *interp.Texels) {
	r := newRig()
	r.sampler.Mag = mode
	h, s := encode(headerFields, &r.header), encode(samplerFields, &r.sampler)
	r.mem.put(0, h[:]...)
	r.mem.put(samplerAt, s[:]...)
	words, err := isa.Assemble("tex t lzero all dfp $r0:$r1:$r2:$r3 t2d $t0 $s0 $r4:$r5 ()")
	if err != nil {
		panic(err)
	}
	in, err := isa.Decode(words[0], 0)
	if err != nil {
		panic(err)
	}
	q := &interp.Texels{Inst: &in, Lanes: ^uint32(0)}
	for lane := range 32 {
		q.A[0][lane], q.A[1][lane] = floats(float64(lane) / 32)[0], floats(0.3)[0]
	}
	return &Unit{Memory: &r.mem, Bound: &r.bound}, q
}

// TestAllocTexture: an instruction allocates nothing.
func TestAllocTexture(t *testing.T) {
	if scale.Race {
		t.Skip("the race detector allocates")
	}
	u, q := warp(filterLinear)
	require.Zero(t, testing.AllocsPerRun(10, func() { require.NoError(t, u.Texture(q)) }))
}
