package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/machine"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
)

// What became of turns that were not all finished: those that every set-up has, but for
// set-ups that failed; or what there is, if no turn was finished.
func TestLives(t *testing.T) {
	rows, err := setup.Choose([]string{report.PassThrough, setup.Naive, setup.All})
	require.NoError(t, err)
	turn := func(ns float64) []machine.Measured {
		return []machine.Measured{{Scenario: "probe", Case: "x", Sample: report.Sample{Phases: []report.PhaseSample{{Name: "p", NS: ns}}}}}
	}
	turns := func(l *lives) map[string]int {
		n := map[string]int{}
		for _, r := range l.results() {
			n[r.Setup] = r.Total.NS.N
			require.Equal(t, r.Setup == setup.Naive && n[report.PassThrough] == 2, r.Ratio != nil && r.Ratio.Median == 3)
		}
		return n
	}
	l := newLives(rows)
	for _, ns := range []float64{1, 2, 5} {
		l.add(report.PassThrough, turn(ns))
	}
	for _, ns := range []float64{3, 6} {
		l.add(setup.Naive, turn(ns))
		l.add(setup.All, turn(ns/3))
	}
	require.Equal(t, map[string]int{report.PassThrough: 2, setup.Naive: 2, setup.All: 2}, turns(l))

	l = newLives(rows)
	l.add(report.PassThrough, turn(1))
	require.Equal(t, map[string]int{report.PassThrough: 1}, turns(l), "no turn is whole")

	l = newLives(rows)
	l.failed(report.PassThrough)
	l.add(setup.Naive, turn(1))
	l.add(setup.Naive, turn(1))
	l.add(setup.All, turn(1))
	require.Equal(t, map[string]int{setup.Naive: 1, setup.All: 1}, turns(l), "the first one failed")
}
