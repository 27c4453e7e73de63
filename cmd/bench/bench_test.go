package bench

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/bench/inside"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/scene"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryScenario runs every scenario of this process once, with set-ups of each kind, and checks
// what was counted. The scenarios verify the data that they move.
func TestEveryScenario(t *testing.T) {
	r, err := Run(t.Context(), Options{
		Quick: true, Rounds: 1, InProcess: true, Setups: []string{setup.PassThrough, setup.Naive, setup.All}, Progress: t.Output(),
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	by := map[string]result.Group{}
	for _, g := range r.Groups(true) {
		by[g.Scenario+"/"+g.Case+"/"+g.Setup] = g
		require.Positive(t, g.Time.Median, "%+v", g)
	}
	p := scene.Params{Quick: true}
	for _, s := range inside.Scenarios {
		for _, c := range s.Cases(p) {
			setups := []string{setup.PassThrough, setup.Naive, setup.All}
			if s.Rows != nil {
				setups = setup.Names(s.Rows)
			}
			for _, name := range setups {
				at := slices.IndexFunc(setup.Rows, func(r setup.Row) bool { return r.Name == name })
				_, have := by[s.Name+"/"+c.Name+"/"+name]
				if s.Name == "traps" && name == setup.All { // reaches what it maps without a trap
					continue
				}
				require.Equal(t, at < 0 || c.Takes(&setup.Rows[at]), have, "%s %s on %s", s.Name, c.Name, name)
			}
		}
	}
	metric := func(key, unit string) float64 {
		require.Contains(t, by[key].Metrics, unit, key)
		return by[key].Metrics[unit].Median
	}
	require.Equal(t, 501.0, metric("submit/submissions=500/naive", result.Traps), "a doorbell each, and a read")
	require.Equal(t, 501.0, metric("submit/submissions=500/naive", "doorbells/op")+1)
	require.Greater(t, metric("tables/dense/entries=16384/naive", "entries-rewritten/op"), 16384.0)
	require.Less(t, metric("tables/dense/entries=16384/all", result.Traps), metric("tables/dense/entries=16384/naive", result.Traps)/10)
	require.NotContains(t, by["tables/dense/entries=16384/pass-through"].Metrics, "scans/op")
	require.NotContains(t, by["traps/bar3-read/all"].Metrics, result.Traps)
	require.Equal(t, 1.0, metric("traps/bar3-read/naive", result.Traps))
}

// TestRows opens every set-up and checks that its guest maps what the row says.
func TestRows(t *testing.T) {
	require.Equal(t, setup.PassThrough, setup.Rows[0].Name)
	for _, row := range slices.Concat(setup.Rows, setup.Transports()) {
		b, err := setup.Open(row, setup.Common)
		require.NoError(t, err)
		g, err := b.Endpoints[0].Attach(t.Context(), guest.Config{})
		require.NoError(t, err, row.Name)
		require.Equal(t, row.Mapped(), g.Mapped(3, 0) != nil || g.Mapped(1, 0) != nil, row.Name)
		counts := b.Counts()
		require.NotZero(t, counts[result.Traps], row.Name)
		require.NotZero(t, counts["invalidates/op"], row.Name)
		for unit, want := range map[string]bool{
			"scans/op": !row.Whole, "entries-changed/op": !row.Whole && row.Scan != "full", "map-scans/op": !row.Whole && row.Mapped(),
		} {
			_, have := counts[unit]
			require.Equal(t, want, have, "%s, %s", row.Name, unit)
		}
		require.NoError(t, g.Close())
		require.NoError(t, b.WaitFree(t.Context()))
		require.NoError(t, b.Close())
	}
	_, err := setup.Open(setup.Row{Name: "x", Sync: "never", Scan: "full", Map: "none"}, setup.Common)
	require.ErrorContains(t, err, "never")
}

// TestChoose checks which set-ups a run takes.
func TestChoose(t *testing.T) {
	rows, err := setup.Choose(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"pass-through", "pass-through+map", "naive", "trapped", "all"}, setup.Names(rows))
	rows, err = setup.Choose([]string{"all", "naive+map"})
	require.NoError(t, err)
	require.Equal(t, []string{"naive+map", "all"}, setup.Names(rows))
	rows, err = setup.Choose([]string{setup.Every})
	require.NoError(t, err)
	require.Len(t, rows, len(setup.Rows))
}
