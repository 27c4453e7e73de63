package aggregator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
)

// scarce is a card with a limited number of mappings.
type scarce struct {
	*fakeCard
	mappings int
}

func (s scarce) MaxMappings() int { return s.mappings }

// TestMappingsAreShared: guests come and go, and open and close windows, in any order. Together
// they never have more mappings than there are, each has enough for its limit on runs, and one
// that wants no more than the least always gets it.
func TestMappingsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(MaxGuests*(leastMappings+2), 20000).Draw(t, "mappings")
		a, err := NewWith(scarce{newFake(64 << 20), all}, Options{})
		require.NoError(t, err)
		var guests []*Guest
		remove := func(i int) {
			require.NoError(t, guests[i].CloseWindows())
			require.Zero(t, guests[i].mappings)
			require.NoError(t, guests[i].Remove())
			guests = append(guests[:i], guests[i+1:]...)
		}
		defer func() {
			for len(guests) > 0 {
				remove(0)
			}
			require.NoError(t, a.Close())
		}()
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(guests) > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				remove(rapid.IntRange(0, len(guests)-1).Draw(t, "guest"))
				continue
			}
			if len(guests) == 8 {
				continue
			}
			want := rapid.IntRange(1, 9000).Draw(t, "runs")
			g, err := a.AddGuest(GuestConfig{
				Name: fmt.Sprint(step), VRAM: 2 << 20, Tables: 1 << 20, Map: aperture.MapPRAMIN, MapLimits: aperture.Limits{Runs: want},
			}, &recorder{})
			require.NoError(t, err)
			guests = append(guests, g)
			require.NoError(t, g.OpenWindows(aperture.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20}))
			runs, sum := int(g.stats.Mapped.MostRuns.Load()), 0
			require.LessOrEqual(t, runs, want)
			require.GreaterOrEqual(t, runs, min(want, 64))
			require.LessOrEqual(t, 2*runs, g.mappings)
			for _, g := range guests {
				sum += g.mappings
			}
			require.LessOrEqual(t, sum, all)
		}
	})
	g := addGuestWith(t, newAggOn(t, scarce{newFake(64 << 20), 300}, Options{}), GuestConfig{Map: aperture.MapPRAMIN})
	require.ErrorContains(t, g.OpenWindows(aperture.Config{BAR0: 32 << 20}), "raise vm.max_map_count, or lower limits.map-runs")
}
