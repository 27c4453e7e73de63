package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Products just beside half of the last place of a sum: 53 bits do not tell the side. The sums are of
// all sizes, denormals too.
func TestFmaRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for name, ops := range sets() {
		for range 2000 {
			var a, b, c, d row
			for i := range d {
				addend := math.Float32frombits(value(r))
				unit := max(math.Ilogb(float64(addend)), -126) - 23
				k := float64(r.IntN(1<<12)) * 0x1p-23
				scale := max(-126, unit/2)
				a[i] = math.Float32bits(float32(math.Ldexp(1+k, scale)))
				b[i] = math.Float32bits(float32(math.Ldexp(1-k, unit-1-scale)))
				b[i] ^= r.Uint32() & signBit
				c[i] = math.Float32bits(addend)
			}
			ops.fma(&d, &a, &b, &c, &params{and: [3]uint32{allLanes, allLanes, allLanes}})
			for i := range d {
				v, w, x := math.Float32frombits(a[i]), math.Float32frombits(b[i]), math.Float32frombits(c[i])
				want := float32(interp.AddOdd(float64(v)*float64(w), float64(x)))
				if want != want {
					want = math.Float32frombits(nanBits)
				}
				require.Equal(t, math.Float32bits(want), d[i], "%s: %x * %x + %x", name, v, w, x)
			}
		}
	}
}
