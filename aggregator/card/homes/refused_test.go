package homes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes/homestest"
)

// stubbornCard moves nothing while it says no.
type stubbornCard struct {
	*fakeCard
	no bool
}

func (c *stubbornCard) Home(m card.Move) (uint64, error) {
	if c.no {
		return 0, errors.New("no")
	}
	return c.fakeCard.Home(m)
}

// TestRefusedMovesAreOfAWindow: a page that the card does not move is counted in the window that
// it was to come to, or to leave.
func TestRefusedMovesAreOfAWindow(t *testing.T) {
	const pages = 8
	c, stats := &stubbornCard{fakeCard: &fakeCard{homestest.New(pages << pageShift)}}, new(Stats)
	s, err := New(Config{Map: MapBAR1 | MapBAR3, BAR1: pages << pageShift, BAR3: pages << pageShift, VRAM: pages << pageShift}, c, stats)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	show := func(at place, e entry) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.plan.show(at, e)
		s.apply()
	}
	show(s.plan.base[BAR3], shows(0, false))
	require.EqualValues(t, 1, stats.Homed[BAR3].Load())
	c.no = true
	show(s.plan.base[BAR1], shows(1, false))
	require.EqualValues(t, 1, stats.MovesRefused[BAR1].Load())
	require.EqualValues(t, 1, stats.MovesRefused.Load())
	show(s.plan.base[BAR3], nothing)
	require.EqualValues(t, 1, stats.MovesRefused[BAR3].Load())
	require.EqualValues(t, 2, stats.MovesRefused.Load())
	c.no = false
}
