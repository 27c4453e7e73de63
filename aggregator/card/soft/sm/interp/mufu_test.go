package interp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The functions are those of package math, to the last bit but one of 32.
func TestSpecialFunctions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for name, f := range map[string]struct {
		ours, want func(float64) float64
		draw       func() float64
		absolute   float64 // error that is allowed near zero
	}{
		"sin":   {Sin, math.Sin, func() float64 { return r.NormFloat64() * 1000 }, 1e-12},
		"cos":   {Cos, math.Cos, func() float64 { return r.NormFloat64() * 1000 }, 1e-12},
		"ex2":   {Ex2, math.Exp2, func() float64 { return r.Float64()*250 - 125 }, 0},
		"lg2":   {Lg2, math.Log2, func() float64 { return math.Exp2(r.Float64()*250 - 125) }, 1e-12},
		"rsqrt": {Rsqrt, func(v float64) float64 { return 1 / math.Sqrt(v) }, func() float64 { return math.Exp2(r.Float64()*250 - 125) }, 0},
	} {
		for range 20000 {
			x := float64(float32(f.draw()))
			got, want := f.ours(x), f.want(x)
			require.InDelta(t, want, got, math.Abs(want)*0x1.8p-24+f.absolute, "%s %v", name, x)
		}
		require.True(t, math.IsNaN(f.ours(math.NaN())), name)
	}
	inf := math.Inf(1)
	for _, c := range []struct{ got, want float64 }{
		{Ex2(inf), math.Exp2(MaxExp2)}, {Ex2(3), 8}, {Lg2(0), -inf}, {Lg2(inf), inf}, {Lg2(8), 3}, {Rsqrt(0), inf}, {Rsqrt(inf), 0}, {Sin(0), 0}, {Cos(0), 1},
	} {
		require.Equal(t, c.want, c.got)
	}
	require.True(t, math.IsNaN(Lg2(-1)) && math.IsNaN(Rsqrt(-1)) && math.IsNaN(Sin(inf)))
	require.LessOrEqual(t, math.Abs(Sin(1e38)), 1.0)
}
