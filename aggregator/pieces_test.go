package aggregator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// scarce is a card whose memory lies in so many pieces at most.
type scarce struct {
	*fakeCard
	pieces int
}

func (s scarce) Pieces() int { return s.pieces }

// Guests come and go, and open and close windows, in any order: together they never may
// have more pieces than there are; each that opens windows has enough for the limit that
// they keep to; and whoever was there before the others opened theirs has its even part.
func TestPiecesAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.IntRange(300, 20000).Draw(t, "pieces")
		a, err := NewWith(scarce{newFake(64 << 20), all}, Options{Map: homes.Limits{Runs: rapid.IntRange(1, 3000).Draw(t, "runs")}})
		require.NoError(t, err)
		defer func() { require.NoError(t, a.Close()) }()
		var guests []*Guest
		open := map[*Guest]bool{}
		defer func() {
			for _, g := range guests {
				require.NoError(t, g.CloseWindows())
				require.NoError(t, g.Remove())
			}
		}()
		// An even part is for who came while nobody had windows open, the least for anybody.
		promised := map[*Guest]int{}
		least := min(2*leastRuns+2, all/MaxGuests)
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				if len(guests) == 8 {
					continue
				}
				own := homes.Limits{}
				if rapid.Bool().Draw(t, "limits of its own") {
					own = a.opts.Map
					own.Runs = rapid.IntRange(1, 3000).Draw(t, "own runs")
				}
				g, err := a.AddGuest(GuestConfig{Name: fmt.Sprint(step), VRAM: 2 << 20, Tables: 1 << 20, Map: homes.MapPRAMIN, MapLimits: own}, &recorder{})
				require.NoError(t, err)
				guests = append(guests, g)
				for _, g := range guests {
					if promised[g] = least; len(open) == 0 {
						promised[g] = (all - (MaxGuests-len(guests))*least) / len(guests)
					}
				}
			case 1:
				if len(guests) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(guests)-1).Draw(t, "guest")
				g := guests[i]
				require.NoError(t, g.CloseWindows())
				require.NoError(t, g.Remove())
				guests = append(guests[:i], guests[i+1:]...)
				delete(open, g)
				delete(promised, g)
			case 2:
				if len(guests) == 0 {
					continue
				}
				g := guests[rapid.IntRange(0, len(guests)-1).Draw(t, "guest")]
				require.NoError(t, g.CloseWindows())
				require.Zero(t, g.pieces)
				delete(open, g)
			default:
				if len(guests) == 0 {
					continue
				}
				g := guests[rapid.IntRange(0, len(guests)-1).Draw(t, "guest")]
				if open[g] {
					continue
				}
				want := g.wanted()
				err := g.OpenWindows(homes.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20})
				if err != nil {
					require.ErrorContains(t, err, "raise vm.max_map_count, or lower limits.map-runs")
					require.Zero(t, g.pieces)
					require.Less(t, promised[g], min(want, 2*leastRuns+g.seams()), "it was promised enough")
					continue
				}
				open[g] = true
				require.GreaterOrEqual(t, g.pieces, min(want, promised[g]))
				runs := int(g.stats.Mapped.MostRuns.Load())
				require.LessOrEqual(t, runs, g.mapLimits().Runs)
				require.LessOrEqual(t, 2*runs+g.seams(), g.pieces)
				require.GreaterOrEqual(t, runs, min(g.mapLimits().Runs, leastRuns))
			}
			sum := 0
			for _, g := range guests {
				sum += g.pieces
			}
			require.LessOrEqual(t, sum, all)
		}
	})
}

// TestWhoCameAloneLeavesTheRest: a guest that opened its windows before others came has more
// than an even part, and they have what is of use all the same.
func TestWhoCameAloneLeavesTheRest(t *testing.T) {
	const all = 4163 // three more than 32 guests need
	a, err := NewWith(scarce{newFake(64 << 20), all}, Options{Map: homes.Limits{Runs: 66}})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	var guests []*Guest
	add := func(name string) {
		g, err := a.AddGuest(GuestConfig{Name: name, VRAM: 2 << 20, Tables: 1 << 20, Map: homes.MapPRAMIN}, &recorder{})
		require.NoError(t, err)
		guests = append(guests, g)
	}
	open := func(g *Guest) {
		require.NoError(t, g.OpenWindows(homes.Config{BAR0: 32 << 20, BAR1: 128 << 20, BAR3: 64 << 20}))
	}
	add("alone")
	open(guests[0])
	require.Equal(t, 2*leastRuns+2+3, guests[0].pieces)
	add("second")
	add("third")
	for _, g := range guests[1:] {
		open(g)
		require.Equal(t, 2*leastRuns+2, g.pieces)
	}
	for _, g := range guests {
		require.NoError(t, g.CloseWindows())
		require.NoError(t, g.Remove())
	}
}
