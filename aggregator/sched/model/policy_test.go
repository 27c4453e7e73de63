package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// TestBand: one with short gaps, against one that would fill the card. The card is kept for the
// gaps, which gives more to a guest that has them, and is idle for a twentieth of the time at most.
func TestBand(t *testing.T) {
	idle := func(r *model.Rig) time.Duration { return r.Now - r.Card.Busy(model.Graphics) }
	against := func(c sched.Config, gap, long time.Duration) *model.Rig {
		return run(t, c, guests(process("gaps", &throttle.Load{Busy: 100 * us, Think: gap}), process("full", busy(long))), 20*s)
	}
	for _, gap := range []time.Duration{20 * us, 200 * us, 450 * us, 2 * ms} {
		credit, band := against(config(sched.Credit), gap, 4*ms), against(config(sched.Band), gap, 4*ms)
		t.Logf("gaps of %v: credit %.2f %%, band %.2f %%, the card kept for it %v", gap, percent(credit, 0), percent(band, 0), idle(band))
		require.LessOrEqual(t, idle(band), 51*band.Now/1000)
		require.GreaterOrEqual(t, percent(band, 0), percent(credit, 0)-0.1)
		if gap < 450*us {
			require.Greater(t, percent(band, 0), 1.5*percent(credit, 0))
		}
		// Every wait is before one of the long requests, and is no longer than the grace.
		require.LessOrEqual(t, idle(band), time.Duration(band.Clients[0].Stats.Done+band.Clients[1].Stats.Done)*500*us)
		require.True(t, gap != 200*us || idle(band) > 0)
	}
	require.Zero(t, idle(against(config(sched.Band), 200*us, 300*us)), "nothing is won by a wait for a request that is shorter than the wait")

	c := config(sched.Band)
	c.Band.Grace = 0
	require.InDelta(t, percent(against(config(sched.Credit), 200*us, 4*ms), 0), percent(against(c, 200*us, 4*ms), 0), 0.5, "without the grace it is credit")

	alone := run(t, config(sched.Band), guests(process("gaps", &throttle.Load{Busy: 100 * us, Think: 200 * us})), 10*s)
	require.InDelta(t, 1.0/3, alone.Efficiency(), 0.001, "alone, nothing is kept from it")

	full := guests(process("a", busy(4171*us)), process("b", busy(100*us)))
	require.InDelta(t, percent(run(t, config(sched.Credit), full, 20*s), 0), percent(run(t, config(sched.Band), full, 20*s), 0), 1, "both always there: credit")
}

// TestTimesliceOverrun: a client's overuse of its slice is compensated, and bounded by the
// number of its requests on the card.
func TestTimesliceOverrun(t *testing.T) {
	for _, slice := range []time.Duration{16 * ms, 30 * ms} {
		for _, depth := range []int{1, 2, 4} {
			c := config(sched.Timeslice)
			c.Timeslice.Slice, c.Depth = slice, depth
			long := 40 * ms
			r, err := model.NewRig(c, guests(process("long", &throttle.Load{Busy: long, Ahead: 8}), process("short", busy(ms))), 1)
			require.NoError(t, err)
			over := time.Duration(0)
			for until := 10 * ms; until <= 30*s; until += 10 * ms {
				require.NoError(t, r.Run(until))
				a, _ := r.Sched.Account(r.Now, r.Clients[0].Node, model.Graphics)
				require.LessOrEqual(t, a.Overrun-over, time.Duration(depth)*long, "more than it may have on the card")
				over = a.Overrun
			}
			require.NotZero(t, over)
			require.InDelta(t, 50, percent(r, 0), 1, "slice %v, depth %d", slice, depth)
		}
	}
}

// TestTimesliceBesideCap: a guest that rests because of its cap, or for lack of work, may
// stop and start in step with the others' slices, but does not make one of these longer
// than another.
func TestTimesliceBesideCap(t *testing.T) {
	for _, weight := range []int{20, 100, 800} {
		for _, limit := range []int{50, 120, 200} {
			for _, think := range []time.Duration{0, 7 * ms, 45 * ms} {
				other := model.Node{Name: "other", Weight: weight, Cap: limit, Load: &throttle.Load{Busy: 3 * ms, Ahead: 4}}
				if think > 0 {
					other.Cap, other.Load = 0, &throttle.Load{Busy: 3 * ms, Think: think}
				}
				r, err := model.NewRig(config(sched.Timeslice), guests(process("a", busy(200*us)), process("b", busy(ms)), other), 1)
				require.NoError(t, err)
				require.NoError(t, r.Run(s))
				for range 3 { // at any time
					before := [2]time.Duration{r.Clients[0].Stats.Busy[model.Graphics], r.Clients[1].Stats.Busy[model.Graphics]}
					require.NoError(t, r.Run(r.Now+2*s))
					a, b := r.Clients[0].Stats.Busy[model.Graphics]-before[0], r.Clients[1].Stats.Busy[model.Graphics]-before[1]
					require.InDelta(t, 0, 100*float64(a-b)/float64(2*s), 2.5, "weight %d, cap %d, think %v: %v and %v", weight, limit, think, a, b)
				}
			}
		}
	}
}

// TestDepth: with more requests on the card, shares stay; each is accounted for before it
// is done.
func TestDepth(t *testing.T) {
	for _, depth := range []int{4, 1, 2, 8} {
		for _, p := range []sched.Policy{sched.Credit, sched.Band, sched.Timeslice} {
			c := config(p)
			c.Depth, c.Ahead, c.Slice = depth, 0, s // paused requests stay on the card
			r := run(t, c, guests(process("a", &throttle.Load{Busy: 4171 * us, Ahead: 16}), process("b", &throttle.Load{Busy: 100 * us, Ahead: 16})), 20*s)
			require.InDelta(t, 50, percent(r, 0), 1, "%v, depth %d", p, depth)
			require.LessOrEqual(t, r.MostOnCard, depth)
		}
	}
}
