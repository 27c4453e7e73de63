package stats_test

import (
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

func TestKnownSummary(t *testing.T) {
	s := stats.Of([]float64{9, 1, 4, 2, 100})
	require.Equal(t, stats.Summary{N: 5, Median: 4, MAD: 3, Q1: 2, Q3: 9, Min: 1, Max: 100, Values: []float64{9, 1, 4, 2, 100}}, s)
	require.Equal(t, 2.5, stats.Median([]float64{4, 1, 2, 3}))
	require.Zero(t, stats.Median(nil))
	require.Zero(t, stats.Of(nil).Median)
	require.Equal(t, 5.0, stats.Of([]float64{5}).Q3)
}

// A summary is in order, keeps the values' order, and one value of many that
// runs away moves neither median nor deviation out of the others' range.
func TestSummary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 40).Draw(t, "values")
		s := stats.Of(values)
		require.True(t, slices.IsSorted([]float64{s.Min, s.Q1, s.Median, s.Q3, s.Max}), "%+v", s)
		require.Equal(t, values, s.Values)
		below, above := 0, 0
		for _, v := range values {
			if v <= s.Median {
				below++
			}
			if v >= s.Median {
				above++
			}
		}
		require.GreaterOrEqual(t, 2*below, len(values))
		require.GreaterOrEqual(t, 2*above, len(values))
		if len(values) > 2 {
			o := stats.Of(append(slices.Clone(values), math.MaxFloat32))
			require.LessOrEqual(t, o.Median, s.Max)
			require.LessOrEqual(t, o.MAD, s.Max-s.Min)
		}
	})
}

// The tables of the sign test have these ranks.
func TestKnownIntervals(t *testing.T) {
	for _, c := range []struct{ n, rank int }{{6, 1}, {8, 1}, {9, 2}, {12, 3}, {20, 6}, {50, 18}, {100, 40}} {
		values := make([]float64, c.n)
		for i := range values {
			values[i] = float64((i*7)%c.n + 1) // in no order, if 7 does not divide their number
		}
		s := stats.Of(values)
		low, high, ok := s.Interval()
		require.True(t, ok)
		require.Equal(t, []float64{float64(c.rank), float64(c.n + 1 - c.rank)}, []float64{low, high}, "%d values", c.n)
	}
	s := stats.Of([]float64{1, 2, 3, 4, 5})
	_, _, ok := s.Interval()
	require.False(t, ok, "5 values are all above the median once in 32 times")
}

// The interval has the median of what was drawn from in it, 19 times in 20.
func TestIntervalHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rounds = 2000
	held := 0
	for range rounds {
		values := make([]float64, 30)
		for i := range values {
			values[i] = r.ExpFloat64()
		}
		s := stats.Of(values)
		if low, high, ok := s.Interval(); ok && low <= math.Ln2 && math.Ln2 <= high {
			held++
		}
	}
	require.Greater(t, held, rounds*94/100)
	require.Less(t, held, rounds*99/100, "an interval that holds everything says nothing")
}

// slow finds the coefficients by the normal equations and Cramer's rule, for the
// size of problem that it can do.
func slow(x [][]float64, y, w []float64) []float64 {
	n := len(x[0])
	m, r := make([][]float64, n), make([]float64, n)
	for j := range m {
		m[j] = make([]float64, n)
		for i := range x {
			r[j] += x[i][j] * y[i] * w[i] * w[i]
			for k := range n {
				m[j][k] += x[i][j] * x[i][k] * w[i] * w[i]
			}
		}
	}
	out := make([]float64, n)
	for k := range out {
		with := make([][]float64, n)
		for j := range with {
			with[j] = slices.Clone(m[j])
			with[j][k] = r[j]
		}
		out[k] = det(with) / det(m)
	}
	return out
}

func det(m [][]float64) float64 {
	if len(m) == 1 {
		return m[0][0]
	}
	d, sign := 0.0, 1.0
	for k := range m {
		var minor [][]float64
		for _, row := range m[1:] {
			minor = append(minor, slices.Concat(row[:k], row[k+1:]))
		}
		d += sign * m[0][k] * det(minor)
		sign = -sign
	}
	return d
}

func TestFitEqualsSlowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cols := rapid.IntRange(1, 4).Draw(t, "cols")
		rows := rapid.IntRange(cols, cols+12).Draw(t, "rows")
		// Eighths: columns are alike or far from it. The twin's normal equations square the
		// condition, and of columns that differ in the tenth digit they know nothing.
		number := rapid.Map(rapid.IntRange(-80, 80), func(n int) float64 { return float64(n) / 8 })
		var x [][]float64
		var y, w []float64
		for range rows {
			x = append(x, rapid.SliceOfN(number, cols, cols).Draw(t, "x"))
			y = append(y, number.Draw(t, "y"))
			w = append(w, float64(rapid.IntRange(1, 24).Draw(t, "w"))/8)
		}
		f, err := stats.Fit(x, y, w)
		if err != nil {
			require.ErrorIs(t, err, stats.ErrDegenerate)
			return
		}
		cost := func(c []float64) (sum float64) {
			for i := range x {
				e := -y[i]
				for j := range c {
					e += x[i][j] * c[j]
				}
				sum += e * e * w[i] * w[i]
			}
			return sum
		}
		least := cost(f.Coefficients)
		require.InDelta(t, math.Sqrt(least/float64(rows)), f.Residual, 1e-6*(1+f.Residual))
		require.LessOrEqual(t, least, cost(slow(x, y, w))*(1+1e-6)+1e-6, "the twin is nearer")
		for j := range cols { // nowhere near is it less
			for _, d := range []float64{-1e-3, 1e-3} {
				c := slices.Clone(f.Coefficients)
				c[j] += d * (1 + math.Abs(c[j]))
				require.LessOrEqual(t, least, cost(c)+1e-6)
			}
		}
	})
}

// What is measured without error comes out as it went in, however unlike the
// columns are.
func TestKnownFit(t *testing.T) {
	want := []float64{50_000, 12_000, 400, 2_500_000}
	var x [][]float64
	var y, w []float64
	for _, row := range [][3]float64{{10, 1000, 1}, {500, 20, 0}, {30, 262144, 64}, {5, 100, 2}, {7000, 3, 9}, {1, 1, 0}} {
		full := []float64{1, row[0], row[1], row[2]}
		sum := 0.0
		for j := range full {
			sum += full[j] * want[j]
		}
		x, y, w = append(x, full), append(y, sum), append(w, 1/sum)
	}
	f, err := stats.Fit(x, y, w)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, f.Coefficients, 1e-3)
	require.Less(t, f.Residual, 1e-9)
	require.InDelta(t, 1, f.R2, 1e-9)
}

func TestDegenerateFit(t *testing.T) {
	for name, x := range map[string][][]float64{
		"no rows":       {},
		"too few rows":  {{1, 2}},
		"equal columns": {{1, 2, 2}, {1, 3, 3}, {1, 5, 5}, {1, 7, 7}},
		"empty column":  {{1, 0}, {1, 0}, {1, 0}},
	} {
		ones := make([]float64, len(x))
		for i := range ones {
			ones[i] = 1
		}
		_, err := stats.Fit(x, ones, ones)
		require.ErrorIs(t, err, stats.ErrDegenerate, name)
	}
}

// slowApart counts out all ways to deal the values anew.
func slowApart(a, b []float64) (side int, enough bool) {
	all := slices.Concat(a, b)
	// wins is how many pairs of a hand and the rest the hand's value is the smaller of.
	wins := func(hand uint) (n float64) {
		for i, v := range all {
			for k, w := range all {
				if hand>>i&1 == 1 && hand>>k&1 == 0 {
					if v < w {
						n++
					} else if v == w {
						n += 0.5
					}
				}
			}
		}
		return n
	}
	// Values that are all different stand for those of any distribution.
	for i := range all {
		all[i] = float64(i)
	}
	var dealt []float64
	for hand := range uint(1) << len(all) {
		if bits.OnesCount(hand) == len(a) {
			dealt = append(dealt, wins(hand))
		}
	}
	pairs := float64(len(a) * len(b))
	likely := func(u float64) float64 {
		few := 0
		for _, w := range dealt {
			if min(w, pairs-w) <= math.Ceil(u) {
				few++
			}
		}
		return float64(few) / float64(len(dealt))
	}
	copy(all, a)
	copy(all[len(a):], b)
	below := wins(1<<len(a) - 1)
	switch {
	case likely(0) > 0.05:
		return 0, false
	case likely(min(below, pairs-below)) > 0.05:
		return 0, true
	case 2*below > pairs:
		return -1, true
	}
	return 1, true
}

func TestApartEqualsSlowTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		apart := float64(rapid.IntRange(0, 12).Draw(t, "apart"))
		value := rapid.Map(rapid.IntRange(0, 12), func(n int) float64 { return float64(n) })
		a := rapid.SliceOfN(value, 1, 6).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Map(value, func(v float64) float64 { return v + apart }), 1, 6).Draw(t, "b")
		side, enough := stats.Apart(a, b)
		wantSide, wantEnough := slowApart(a, b)
		require.Equal(t, wantEnough, enough)
		require.Equal(t, wantSide, side)
		back, _ := stats.Apart(b, a)
		require.Equal(t, -side, back)
	})
}

// Four and four can lie apart, three and three cannot, three and five can; one beside many can,
// however many. Many in both are told by the normal distribution, which has no jump to the exact
// way.
func TestKnownApart(t *testing.T) {
	run := func(n int, from float64) (out []float64) {
		for i := range n {
			out = append(out, from+float64(i))
		}
		return out
	}
	for _, c := range []struct {
		n, m   int
		by     float64
		side   int
		enough bool
	}{
		{0, 9, 100, 0, false}, {3, 3, 100, 0, false}, {4, 3, 100, 0, false}, {4, 4, 100, -1, true}, {5, 5, 3, 0, true}, {5, 5, 4, -1, true},
		{50, 50, 6, 0, true}, {50, 50, 7, -1, true}, {51, 51, 6, 0, true}, {51, 51, 7, -1, true}, {500, 500, 0, 0, true}, {500, 500, 40, -1, true},
		{3, 4, 100, 0, false}, {3, 5, 100, -1, true}, {5, 3, 100, -1, true}, {2, 7, 100, 0, false}, {2, 8, 100, -1, true},
		{1, 38, 100, 0, false}, {1, 39, 100, -1, true}, {1, 2500, 100, -1, true}, {1, 2501, 100, -1, true}, {2501, 1, 9000, -1, true}, {2, 4000, 100, -1, true},
	} {
		side, enough := stats.Apart(run(c.n, 0.25), run(c.m, c.by))
		require.Equal(t, c.enough, enough, c)
		require.Equal(t, c.side, side, c)
	}
}

// slowMistaken counts the orders of the values out in whole numbers: how many of them have u
// pairs one way round is how many ways there are to write u as a sum of n numbers of up to m.
func slowMistaken(n, m int) float64 {
	// ways[k][u] are those of k numbers that sum to u, of the numbers looked at so far.
	ways := make([][]*big.Int, n+1)
	for k := range ways {
		ways[k] = make([]*big.Int, n*m+1)
		for u := range ways[k] {
			ways[k][u] = new(big.Int)
		}
	}
	for k := range ways { // any of them may be 0
		ways[k][0].SetInt64(1)
	}
	for number := 1; number <= m; number++ {
		for k := 1; k <= n; k++ {
			for u := number; u <= k*number; u++ {
				ways[k][u].Add(ways[k][u], ways[k-1][u-number])
			}
		}
	}
	all, few, level := new(big.Int).Binomial(int64(n+m), int64(n)), new(big.Int), 0.0
	for u := 0; 2*u <= n*m; u++ {
		few.Add(few, ways[n][u])
		p, _ := new(big.Rat).SetFrac(few, all).Float64()
		if 2*p > 0.05 {
			break
		}
		level = 2 * p
	}
	return level
}

// Mistaken is what there is to be counted, up to fifty values in the smaller set, and next to it
// above.
func TestMistakenEqualsSlowTwin(t *testing.T) {
	for n := range 13 {
		for m := range 13 {
			if n > 0 && m > 0 {
				require.InDelta(t, slowMistaken(n, m), stats.Mistaken(n, m), 1e-12, "%d and %d", n, m)
			}
		}
	}
	require.Zero(t, stats.Mistaken(0, 9))
	require.Zero(t, stats.Mistaken(3, 3))
	require.InDelta(t, 2.0/70, stats.Mistaken(4, 4), 1e-12)
	require.InDelta(t, 8.0/252, stats.Mistaken(5, 5), 1e-12)
	for _, c := range []struct {
		n, m int
		off  float64
	}{{1, 2501, 1e-9}, {2, 1300, 1e-9}, {5, 501, 1e-9}, {20, 130, 1e-9}, {50, 51, 1e-9}, {51, 51, 1e-3}, {51, 90, 1e-3}} {
		require.InDelta(t, slowMistaken(c.n, c.m), stats.Mistaken(c.n, c.m), c.off, "%d and %d", c.n, c.m)
		require.Equal(t, stats.Mistaken(c.n, c.m), stats.Mistaken(c.m, c.n))
	}
}

// What is otherwise in one of two runs is called a difference, for it is one: where runs drift
// apart as much as repetitions do, five and five are called apart in a third of the cases.
// docs/bench.md says so.
func TestApartByDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rounds = 4000
	called := 0
	for range rounds {
		a, b := make([]float64, 5), make([]float64, 5)
		ofA, ofB := rng.NormFloat64(), rng.NormFloat64()
		for i := range a {
			a[i], b[i] = ofA+rng.NormFloat64(), ofB+rng.NormFloat64()
		}
		if side, _ := stats.Apart(a, b); side != 0 {
			called++
		}
	}
	require.InDelta(t, 0.31, float64(called)/rounds, 0.03)
}

// What is the same thing is called apart in one of twenty cases at most: as often as Mistaken
// says.
func TestApartByChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{4, 5, 9, 30, 60} {
		const rounds = 4000
		called := 0
		for range rounds {
			a, b := make([]float64, n), make([]float64, n)
			for i := range n {
				a[i], b[i] = rng.ExpFloat64(), rng.ExpFloat64()
			}
			if side, _ := stats.Apart(a, b); side != 0 {
				called++
			}
		}
		require.LessOrEqual(t, stats.Mistaken(n, n), 0.05, n)
		require.InDelta(t, stats.Mistaken(n, n), float64(called)/rounds, 0.011, n) // three deviations
	}
}
