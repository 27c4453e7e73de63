package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// phasesOf makes results whose times are what known costs make of their counts.
func phasesOf(r *rand.Rand, setups int, noise float64, counts func() map[string]float64, cost map[string]float64) []point {
	var results []report.Result
	for phase := range 4 {
		for range setups {
			c := counts()
			ns := 1000 * math.Pow(10, float64(phase))
			s := map[string]stats.Summary{}
			for name, n := range c {
				ns += cost[name] * n
				s[name] = stats.Of([]float64{n})
			}
			ns *= 1 + noise*(2*r.Float64()-1)
			results = append(results, report.Result{
				Scenario: "storm", Case: fmt.Sprint(phase), Phases: []report.Phase{{Name: "submit", NS: stats.Of([]float64{ns}), Counts: s}},
			})
		}
	}
	return points(results)
}

// What was put in comes out: the terms' costs, and each phase's own time.
func TestModelFindsTheCosts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	cost := map[string]float64{report.Wakes: 12000, report.Messages: 300, report.TrapNS: 1.1, report.ShadowNS: 0.9}
	counts := func() map[string]float64 {
		return map[string]float64{
			report.Wakes: float64(r.IntN(50)), report.Messages: float64(r.IntN(3000)), report.TrapNS: 1e6 * r.Float64(), report.ShadowNS: 1e7 * r.Float64(),
		}
	}
	m, err := fit(phasesOf(r, 12, 0, counts, cost), measuredTerms)
	require.NoError(t, err)
	require.Len(t, m.Terms, 4)
	for _, x := range m.Terms {
		require.InEpsilon(t, cost[x.Count], x.NS, 1e-6, x.Count)
	}
	for i, o := range m.Own {
		require.Equal(t, fmt.Sprintf("storm, %d, submit", i), o.Phase)
		require.InEpsilon(t, 1000*math.Pow(10, float64(i)), o.NS, 1e-3, o.Phase)
	}
	require.Equal(t, 48, m.N)
	require.Less(t, m.Residual, 1e-9)

	// Noise is left over, and is not taken for the phases' own time.
	m, err = fit(phasesOf(r, 12, 0.3, counts, cost), measuredTerms)
	require.NoError(t, err)
	require.InDelta(t, 0.3/math.Sqrt(3), m.Residual, 0.06)
}

// What nothing in the run has is no term, what goes in step with another neither.
func TestModelLeavesOut(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	m, err := fit(phasesOf(r, 12, 0, func() map[string]float64 {
		n := float64(r.IntN(30))
		return map[string]float64{report.Wakes: float64(r.IntN(100)), report.Messages: float64(r.IntN(1000)), report.Scans: n, report.Examined: 32768 * n}
	}, map[string]float64{report.Wakes: 10000, report.Messages: 300, report.Scans: 50000, report.Examined: 10}), countedTerms)
	require.NoError(t, err)
	var names []string
	for _, x := range m.Terms {
		names = append(names, x.Count)
	}
	require.Equal(t, []string{report.Wakes, report.Messages, report.Scans}, names)
	require.InEpsilon(t, 50000+10*32768, m.Terms[2].NS, 1e-6)

	m, err = fit(phasesOf(r, 2, 0, func() map[string]float64 { return map[string]float64{report.Wakes: 1} }, nil), countedTerms)
	require.NoError(t, err)
	require.Nil(t, m, "8 phases of 4 kinds say nothing")
}
