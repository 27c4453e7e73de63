package sched_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// TestBandKeepsTheCardBusy: the card is kept for short gaps, which gives more to guests
// that have them, and is idle for a twentieth of the time at most.
func TestBandKeepsTheCardBusy(t *testing.T) {
	idle := func(r *model.Rig) float64 { return 1 - float64(r.Card.Busy(model.Graphics))/float64(r.Now) }
	for _, gap := range []time.Duration{20 * us, 200 * us, 450 * us, 2 * ms} {
		loads := []throttle.Load{{Busy: 100 * us, Think: gap}, {Busy: 4 * ms, Ahead: 4}}
		credit, band := pairOf(t, sched.Credit, 0, loads...), pairOf(t, sched.Band, 0, loads...)
		t.Logf("gaps of %v: credit %.2f %%, band %.2f %%, idle %.2f %%", gap, shareOf(credit, 0), shareOf(band, 0), 100*idle(band))
		require.LessOrEqual(t, idle(band), 0.051)
		require.GreaterOrEqual(t, shareOf(band, 0), shareOf(credit, 0)-0.1)
		if gap < 450*us {
			require.Greater(t, shareOf(band, 0), 1.5*shareOf(credit, 0))
		}
	}
	// Nothing is won by a wait for a request that is shorter than the wait.
	require.Zero(t, idle(pairOf(t, sched.Band, 0, throttle.Load{Busy: 100 * us, Think: 200 * us}, throttle.Load{Busy: 300 * us, Ahead: 4})))
}
