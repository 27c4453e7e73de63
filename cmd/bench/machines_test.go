package bench

import (
	"bytes"
	"errors"
	"testing"
	"time"

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

// A case that some set-ups of a plan do not take is cut to whole turns all the same.
func TestLivesOfSome(t *testing.T) {
	rows, err := setup.Choose([]string{report.PassThrough, setup.Naive, setup.All})
	require.NoError(t, err)
	l := newLives(rows)
	ring := func(setup string, ns float64) {
		l.add(setup, []machine.Measured{{Scenario: report.Bells, Case: "x", Sample: report.Sample{Phases: []report.PhaseSample{{Name: "p", NS: ns}}}}})
	}
	ring(report.PassThrough, 1)
	ring(setup.All, 2)
	ring(setup.All, 9) // the turn after began with it, and was broken off
	results := l.results()
	require.Len(t, results, 2)
	for _, r := range results {
		require.Equal(t, 1, r.Total.NS.N, r.Setup)
		require.NotNil(t, r.Ratio, r.Setup)
	}
}

// Only a machine that did what it was booted for tells how long the others will take.
func TestForetell(t *testing.T) {
	rows, err := setup.Choose([]string{report.PassThrough, setup.All})
	require.NoError(t, err)
	var b bytes.Buffer
	r := &run{Options: Options{Boots: 2, Progress: &b}, rows: rows, began: time.Now()}
	r.foretell(machine.Plans(nil), rows, "6.12", 10*time.Second, nil)
	require.Contains(t, b.String(), "4 machines more; that one, which only probed, took 10 s, so about 40 s")
	b.Reset()
	r.foretell(machine.Plans(nil), rows, "6.12", time.Second, errors.New("it fell silent"))
	require.Contains(t, b.String(), "Linux 6.12 on pass-through: it fell silent")
	require.NotContains(t, b.String(), "more")
}

// Machines have the names of this process's scenarios, of those that they measure.
func TestNameScenarios(t *testing.T) {
	r := &run{Options: Options{Machines: true}, out: new(report.Report)}
	r.nameScenarios()
	require.Len(t, r.out.Scenarios, len(Scenarios())-3, "program, growth and crowd are of this process alone")
}
