package window

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// TestMappingsAreShared: guests open and close windows in any order. Together they never have more
// mappings than there are, each has enough for its limit on runs, and one that wants no more than
// the least always gets it.
func TestMappingsAreShared(t *testing.T) {
	const guests = 32
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(guests*(leastMappings+2), 50_000).Draw(t, "mappings")
		q := NewQuota(all, guests)
		open := make([]*BARs, 8)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "guest")
			if w := open[i]; w != nil {
				q.give(w)
				open[i] = nil
				continue
			}
			open[i] = new(BARs)
			want := rapid.IntRange(1, 9000).Draw(t, "runs")
			l := aperture.Limits{Runs: want}
			require.NoError(t, q.take(open[i], 1, &l))
			require.LessOrEqual(t, l.Runs, want)
			require.GreaterOrEqual(t, l.Runs, min(want, 512))
			require.LessOrEqual(t, 2*l.Runs+2, q.taken[open[i]])
			sum := 0
			for _, n := range q.taken {
				sum += n
			}
			require.LessOrEqual(t, sum, all)
		}
	})
	err := NewQuota(300, guests).take(new(BARs), 1, &aperture.Limits{})
	require.ErrorContains(t, err, "raise vm.max_map_count, or lower limits.map-runs")
}
