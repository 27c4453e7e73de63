package setup

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/tests/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every row serves, what it says about mapping is so, and its options are those
// that the report names.
func TestRows(t *testing.T) {
	require.Equal(t, report.PassThrough, Rows[0].Name)
	seen := map[string]bool{}
	for _, row := range Rows {
		require.False(t, seen[row.Name], "%s is there twice", row.Name)
		seen[row.Name] = true
		require.NotEmpty(t, row.About)
		require.Len(t, row.Options(), len(row.GPU)+len(row.Server)+len(row.Limits))
		b, err := Open(row, Common)
		require.NoError(t, err, row.Name)
		require.Len(t, b.Seats, 1)
		g, err := b.Seats[0].Attach(t.Context(), guest.Config{})
		require.NoError(t, err, row.Name)
		require.Equal(t, Common.VRAM, g.VRAM(), row.Name)
		mapped := g.Mapped(3, 0) != nil || g.Mapped(1, 0) != nil
		require.Equal(t, row.Mapped(), mapped, row.Name)
		counts := b.Counts()
		require.NotZero(t, counts[report.Reads], row.Name)
		require.NotZero(t, counts[report.TrapNS], row.Name)
		require.NotZero(t, counts[report.Invalidates], row.Name)
		if _, ok := counts[report.Scans]; ok == row.Whole {
			t.Errorf("%s: scans are counted: %v", row.Name, ok)
		}
		require.Equal(t, !row.Whole && row.GPU[optScan] != "full", has(counts, report.Changed), "%s: a full scan does not tell what changed", row.Name)
		for _, n := range []string{report.MapScans, report.MapPages} {
			require.Equal(t, !row.Whole && mapped, has(counts, n), "%s: nothing moves where nothing is mapped", row.Name)
		}
		require.NoError(t, g.Close())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, b.WaitFree(ctx), row.Name)
		cancel()
		require.NoError(t, b.Close())
	}
}

func has(counts map[string]float64, name string) bool { _, ok := counts[name]; return ok }

// Nothing holds a full scan back: it would be the limit that is measured. What is served by
// default is measured with the limit that is there by default.
func TestFullScansAreNotHeldBack(t *testing.T) {
	for _, row := range Rows {
		if row.Whole {
			continue
		}
		layer, err := row.layer(Common, func(int) string { return "x.sock" })
		require.NoError(t, err, row.Name)
		rate := uint64(layer.Config.Limits.TableRate)
		switch {
		case row.GPU[optScan] == "full":
			require.Equal(t, uint64(1<<40), rate, row.Name)
		case row.Name == All:
			require.Equal(t, uint64(512<<20), rate)
			require.NotContains(t, row.Options(), "limits.table-rate")
		}
	}
}

// An option alone differs from naive in that option. What is not a step from naive has the
// limit that is there by default.
func TestRowsAreAblations(t *testing.T) {
	rows, err := Choose([]string{Naive})
	require.NoError(t, err)
	naive := rows[0].Options()
	for _, c := range []struct {
		name    string
		options []string
	}{
		{"lazy", []string{"gpu.shadow.sync"}}, {"incremental", []string{"gpu.shadow.scan"}}, {"mapped", []string{"gpu.bar-map"}}, {"poll", []string{"gpu.doorbell"}},
		{"lazy+incremental", []string{"gpu.shadow.scan", "gpu.shadow.sync", "limits.table-rate"}},
		{All, []string{"gpu.bar-map", "gpu.shadow.scan", "gpu.shadow.sync", "limits.table-rate"}},
		{"all+poll", []string{"gpu.bar-map", "gpu.shadow.scan", "gpu.shadow.sync", "gpu.doorbell", "limits.table-rate"}},
	} {
		rows, err := Choose([]string{c.name})
		require.NoError(t, err)
		options := rows[0].Options()
		keys := maps.Clone(naive)
		maps.Copy(keys, options)
		var differ []string
		for k := range keys {
			if naive[k] != options[k] {
				differ = append(differ, k)
			}
		}
		require.ElementsMatch(t, c.options, differ, c.name)
	}
}

// A row that says nonsense is refused, with what would be right.
func TestNonsense(t *testing.T) {
	for _, c := range []struct {
		row  Row
		says string
	}{
		{Row{Name: "x", GPU: map[string]string{optSync: "never"}}, "shadow.sync: never: must be eager or flush or lazy"},
		{Row{Name: "x", GPU: map[string]string{optSync: "eager", optScan: "full"}}, "eager does not go with shadow.scan=full"},
		{Row{Name: "x", GPU: map[string]string{optMap: "bar7"}}, "bar-map"},
		{Row{Name: "x", GPU: map[string]string{"luck": "7"}}, "luck"},
		{Row{Name: "x", Whole: true, GPU: map[string]string{optMap: "bar7"}}, "bar-map"},
	} {
		_, err := Open(c.row, Common)
		require.ErrorContains(t, err, c.says)
	}
}
