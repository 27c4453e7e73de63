package shadow

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnyAmount compares the wait for spent amounts with a computation without overflow. For
// more than a Duration holds, it is the longest wait.
func TestAnyAmount(t *testing.T) {
	now := time.Now()
	for _, rate := range []float64{1, 512 << 20, 1 << 40} {
		for n := 1.; n <= math.MaxFloat64/8; n *= 8 {
			var b Bucket
			b.Spend(now, rate, n)
			d := b.Due(now, rate, 0)
			exact := new(big.Float).Mul(big.NewFloat(n), big.NewFloat(1e9))
			want, _ := exact.Quo(exact, big.NewFloat(rate)).Float64()
			want = min(want, float64(longestWait))
			require.InDelta(t, want, float64(d), 1+want/1e9, "%g at %g", n, rate)
			require.Zero(t, b.Due(now, rate, n), "all of it may be in the bucket")
		}
	}
}
