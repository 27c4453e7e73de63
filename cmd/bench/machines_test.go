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
