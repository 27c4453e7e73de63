package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// flooded is a victim beside a guest with 30 channels. It returns the guest's part of the card and the
// victim's longest standstill.
func flooded(t *testing.T, p sched.Policy, length, after, late time.Duration, interrupts bool) (share float64, standstill time.Duration) {
	r, err := model.NewRig(config(p), guests(process("victim", busy(ms)), model.Node{Name: "flood", Nodes: []model.Node{process("idle", busy(ms))}}), 1)
	require.NoError(t, err)
	r.Card.Interrupts, r.Late = interrupts, late
	victim, flood := r.Clients[0], r.Clients[1].Guest
	r.Clients[1].Stop()
	group, err := r.Sched.AddNode(0, flood, sched.NodeConfig{})
	require.NoError(t, err)
	var channels []sched.ID
	for range 30 {
		ch, err := r.Sched.AddChannel(0, group, 0)
		require.NoError(t, err)
		channels = append(channels, ch)
	}
	if after > 0 {
		r.Flood(channels, length, after, 20*s)
	} else {
		for _, ch := range channels {
			r.Drive(ch, length, 1, 20*s)
		}
	}
	done, at := 0, time.Duration(0)
	for r.Now < 2*s {
		require.NoError(t, r.Run(r.Now+ms))
		if victim.Stats.Done != done {
			done, at = victim.Stats.Done, r.Now
		}
		standstill = max(standstill, r.Now-at)
	}
	a, _ := r.Sched.Account(r.Now, flood, 0)
	checkLedger(t, r)
	require.Zero(t, r.Sched.Counts.BadEvents+r.Sched.Counts.BadTimes)
	return 100 * float64(a.Busy) / float64(r.Card.Busy(0)), standstill
}

// TestParkedBursts: a guest that lets 30 requests reach the card, where they wait for one semaphore,
// and releases all at once, gets no more of the card and stops nobody for longer than one that submits
// them without a wait. So it is on cards that interrupt requests and on others, and if the release
// is seen late. A guest that comes back may have saved two periods.
func TestParkedBursts(t *testing.T) {
	for _, p := range fair {
		for _, length := range []time.Duration{7 * ms, 40 * ms} {
			for _, interrupts := range []bool{false, true} {
				if length > 10*ms && !interrupts {
					continue // shares of two seconds are no more exact than such requests
				}
				share, honest := flooded(t, p, length, 0, 0, interrupts)
				for _, late := range []time.Duration{0, 2 * ms} {
					got, still := flooded(t, p, length, 20*ms, late, interrupts)
					t.Logf("%v, %v, seen after %v, interrupts %v: %.1f %% and %v, without a wait %.1f %% and %v",
						p, length, late, interrupts, got, still, share, honest)
					require.LessOrEqual(t, got, max(share, 50)+3, "%v, %v", p, length)
					require.LessOrEqual(t, still, honest+2*sched.Default().Credit.Period+10*ms, "%v, %v", p, length)
				}
			}
		}
	}
}

// TestLongRequest: a request of seconds gets its guest's share of a card that interrupts it, and the
// others go on meanwhile. On a card that does not, others wait for its end.
func TestLongRequest(t *testing.T) {
	for _, p := range fair {
		for _, weight := range []int{100, 300} {
			r, err := model.NewRig(config(p), guests(
				process("long", &throttle.Load{Busy: 6 * s, Requests: 1}),
				model.Node{Name: "victim", Weight: weight, Load: busy(ms)}), 1)
			require.NoError(t, err)
			r.Card.Interrupts = true
			worst, done, at := time.Duration(0), 0, time.Duration(0)
			for r.Now < 5*s {
				require.NoError(t, r.Run(r.Now+ms))
				if n := r.Clients[1].Stats.Done; n != done {
					done, at = n, r.Now
				}
				worst = max(worst, r.Now-at)
			}
			long, _ := r.Sched.Account(r.Now, r.Clients[0].Guest, 0)
			share := 100 * long.Busy.Seconds() / r.Now.Seconds()
			t.Logf("%v, weights 100 and %d: %.1f %%, standstill %v", p, weight, share, worst)
			require.InDelta(t, 100*100/float64(100+weight), share, 2, "%v, %d", p, weight)
			bound := 2 * sched.Default().Slice
			switch p {
			case sched.Timeslice:
				bound = 2 * sched.Default().Timeslice.Slice
			case sched.DFQ: // a free run without it
				bound = 200 * ms
			}
			require.LessOrEqual(t, worst, bound, "%v, %d", p, weight)
			require.NoError(t, r.Run(30*s))
			require.True(t, r.Clients[0].Finished(), "it goes on until its end")
			require.Zero(t, r.Clients[0].Stats.Aborted)
			checkLedger(t, r)
			require.Zero(t, r.Sched.Counts.BadEvents+r.Sched.Counts.BadTimes)
		}
		r, err := model.NewRig(config(p), guests(process("long", &throttle.Load{Busy: 5 * s, Requests: 1}), process("victim", busy(ms))), 1)
		require.NoError(t, err)
		require.NoError(t, r.Run(20*s))
		require.True(t, r.Clients[0].Finished(), "%v, a card that does not interrupt", p)
		require.Greater(t, r.Clients[1].Stats.Done, 14_000, p)
	}
}

// TestLimitIsEngineTime: a request that others interrupt again and again is aborted when engines have
// worked for it for as long as its limit.
func TestLimitIsEngineTime(t *testing.T) {
	for _, p := range fair {
		c := config(p)
		c.Watchdog.Limit, c.Watchdog.Grace = 500*ms, 20*ms
		r, err := model.NewRig(c, guests(process("bad", busy(ms)), process("good", busy(ms))), 1)
		require.NoError(t, err)
		r.Card.Interrupts = true
		require.NoError(t, r.Run(100*ms))
		r.Poison(r.Clients[0])
		require.NoError(t, r.Run(800*ms))
		require.Zero(t, r.Clients[0].Stats.Aborted, "%v: it has had half of the time", p)
		require.NoError(t, r.Run(1500*ms))
		require.Equal(t, 1, r.Clients[0].Stats.Aborted, p)
		require.Zero(t, r.Clients[1].Stats.Aborted, p)
		require.EqualValues(t, 1, r.Sched.Counts.Runaways)
	}
}

// TestLongRequestObeysCap: a request of seconds does not exceed its guest's cap on an idle card.
func TestLongRequestObeysCap(t *testing.T) {
	for _, p := range fair {
		r, err := model.NewRig(config(p), guests(model.Node{Name: "long", Cap: 100, Load: &throttle.Load{Busy: 20 * s, Requests: 1}}), 1)
		require.NoError(t, err)
		r.Card.Interrupts = true
		require.NoError(t, r.Run(10*s))
		require.InDelta(t, 1, r.Card.Busy(model.Graphics).Seconds(), 0.05, p)
	}
}
