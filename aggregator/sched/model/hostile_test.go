package model_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// Clients that try to get more than their share, and clients whose work does not end.

// gain is by how many points a cheat's share exceeds its share when honest.
func gain(t *testing.T, c sched.Config, honest, cheat model.Mix) float64 {
	return percent(run(t, c, cheat, 10*s), 0) - percent(run(t, c, honest, 10*s), 0)
}

// TestSamplingCheat: short requests while it is sampled, long ones otherwise. Measured
// charges cannot be cheated; estimated ones can.
func TestSamplingCheat(t *testing.T) {
	cheat := guests(process("cheat", &throttle.Load{Busy: 4 * ms, Alone: 100 * us}), process("honest", busy(ms)))
	for _, p := range fair {
		r := run(t, config(p), cheat, 60*s)
		t.Logf("%v: %.2f %%", p, percent(r, 0))
		require.InDelta(t, 50, percent(r, 0), 1, p)
	}
	c := config(sched.DFQ)
	c.DFQ.Model = true
	r := run(t, c, cheat, 60*s)
	t.Logf("model charge: %.1f %%", percent(r, 0))
	require.Greater(t, percent(r, 0), 75.0, "the model charge is not cheated, so this proves nothing")
}

// TestChurn: a process that ends and begins again every 20 ms does not lose its debt.
func TestChurn(t *testing.T) {
	for _, inside := range []bool{false, true} {
		mix := func(life time.Duration) model.Mix {
			a := process("a", &throttle.Load{Busy: 4171 * us, Life: life})
			b := process("b", busy(100*us))
			if inside {
				return guests(model.Node{Name: "guest", Nodes: []model.Node{a, b}})
			}
			// The guest stays; its process is created again.
			return guests(model.Node{Name: "guest", Nodes: []model.Node{a}}, b)
		}
		for _, p := range fair {
			g := gain(t, config(p), mix(0), mix(20*ms))
			t.Logf("inside %v, %v: %+.2f points", inside, p, g)
			require.LessOrEqual(t, g, 1.0, "inside %v, %v", inside, p)
		}
	}
}

// TestBogusGroups: for any groups that a guest makes, others keep their share and the scheduler
// its memory.
func TestBogusGroups(t *testing.T) {
	for _, groups := range []int{1, 100, 10_000} {
		c := config(sched.Credit)
		c.Limits.Creations = 1 << 20
		r, err := model.NewRig(c, guests(process("honest", busy(ms)), model.Node{Name: "liar", Nodes: []model.Node{process("p", busy(ms))}}), 1)
		require.NoError(t, err)
		liar, refused := r.Clients[1].Guest, 0
		for i := range groups {
			id, err := r.Sched.AddNode(0, liar, sched.NodeConfig{})
			if err != nil {
				require.ErrorIs(t, err, sched.ErrFull)
				refused++
				continue
			}
			if i < 100 {
				ch, err := r.Sched.AddChannel(0, id, 0)
				require.NoError(t, err)
				r.Drive(ch, ms, 2, 10*s)
			}
		}
		require.NoError(t, r.Run(10*s))
		require.InDelta(t, 50, 100*float64(r.Clients[0].Stats.Got)/float64(10*s), 1, "%d groups", groups)
		require.Equal(t, max(0, groups-c.Limits.Channels+1), refused)
		require.LessOrEqual(t, len(r.Sched.Ledger(r.Now)), 2*c.Limits.Channels+8)
		checkLedger(t, r)
	}
}

// TestStorm: a guest may make as many groups a second as its limit says, and no more.
func TestStorm(t *testing.T) {
	c := config(sched.Credit)
	c.Limits.Creations = 10
	sc, err := sched.New(c, 1, 0)
	require.NoError(t, err)
	g, err := sc.AddNode(0, sched.Card, sched.NodeConfig{Name: "g"})
	require.NoError(t, err)
	made := 0
	for i := range 1000 {
		id, err := sc.AddNode(time.Duration(i)*ms, g, sched.NodeConfig{})
		if err != nil {
			require.ErrorIs(t, err, sched.ErrStorm)
			continue
		}
		made++
		require.True(t, sc.Remove(time.Duration(i)*ms, id))
	}
	require.Equal(t, c.Limits.Creations, made)
	require.EqualValues(t, 1000-made, sc.Counts.Storms)
	_, err = sc.AddNode(3*s, g, sched.NodeConfig{})
	require.NoError(t, err, "later it may again")
}

// TestHeartwall: a program that hardly uses the card, against one that would fill it, is
// served soon and costs the other nothing.
func TestHeartwall(t *testing.T) {
	short := &throttle.Load{Busy: 250 * us, Think: 25 * ms, Requests: 100}
	for _, p := range append([]sched.Policy{sched.None}, fair...) {
		for _, long := range []time.Duration{ms, 100 * us, 10 * ms} {
			c := config(p)
			alone := runtime(t, c, guests(process("heartwall", short)))
			r := run(t, c, guests(process("heartwall", short), process("busy", busy(long))), 20*s)
			k := r.Clients[0]
			require.True(t, k.Finished())
			worst := k.Stats.Latency(1)
			t.Logf("%v against %v: slowdown %.2f, latency median %v, worst %v", p, long, float64(k.Stats.Last)/float64(alone), k.Stats.Latency(0.5), worst)
			bound := 2*long + long // the one under way, one before it in the ring, and its own
			switch p {
			case sched.Timeslice: // the rest of the other's slice, and its drain
				bound += c.Timeslice.Slice
			case sched.DFQ: // the other's slice when there is one, with its drain
				bound += max(c.DFQ.Slice, min(4*c.DFQ.Slice, 5*long)) + long
			}
			require.LessOrEqual(t, worst, bound+ms, "%v against %v", p, long)
			require.GreaterOrEqual(t, r.Efficiency(), 0.95, "%v against %v", p, long)
			rest := r.Now - k.Stats.Busy[model.Graphics]
			require.GreaterOrEqual(t, r.Clients[1].Stats.Busy[model.Graphics], rest*95/100, "%v against %v: the other gets the rest", p, long)
		}
	}
}

// TestRunaway: a request that does not end costs its channel, and others no more than the
// limit.
func TestRunaway(t *testing.T) {
	for _, p := range append([]sched.Policy{sched.None, sched.FIFO}, fair...) {
		c := config(p)
		c.Watchdog.Limit, c.Watchdog.Grace = 200*ms, 20*ms
		r, err := model.NewRig(c, guests(
			model.Node{Name: "bad", Nodes: []model.Node{process("p", busy(ms)), process("sibling", busy(ms))}},
			process("good", busy(ms))), 1)
		require.NoError(t, err)
		second, err := r.Sched.AddChannel(0, r.Clients[0].Node, model.Graphics)
		require.NoError(t, err)
		driven := r.Drive(second, ms, 2, time.Hour)
		require.NoError(t, r.Run(s))
		var alerts []sched.Alert
		var abortedAt time.Duration
		r.OnAlert = func(a sched.Alert) bool {
			alerts = append(alerts, a)
			if a.Kind == sched.Abort {
				abortedAt = r.Now
			}
			return false
		}
		r.Poison(r.Clients[0])
		require.NoError(t, r.Run(4*s))
		require.Len(t, alerts, 2, p)
		require.Equal(t, sched.Warn, alerts[0].Kind)
		require.Equal(t, sched.Abort, alerts[1].Kind)
		require.Equal(t, r.Channel(r.Clients[0]), alerts[1].Channel, "%v: the guilty one, and no other", p)
		require.LessOrEqual(t, abortedAt, s+c.Watchdog.Limit+c.Watchdog.Grace+100*ms)
		require.Equal(t, 1, r.Clients[0].Stats.Aborted)
		before := [3]int{r.Clients[1].Stats.Done, r.Clients[2].Stats.Done, driven.Stats.Done}
		require.NoError(t, r.Run(7*s))
		require.Greater(t, r.Clients[1].Stats.Done-before[0], 600, "%v: its sibling continues", p)
		require.Greater(t, r.Clients[2].Stats.Done-before[1], 900, "%v: so does the other guest", p)
		require.Greater(t, driven.Stats.Done-before[2], 500, "%v: and the other channel of its process", p)
		require.EqualValues(t, 1, r.Sched.Counts.Runaways)
		checkLedger(t, r)
	}
}

// TestQuarantine: a guest whose requests repeatedly do not end gets no turns until it is
// released; those that waited for it are not suspected.
func TestQuarantine(t *testing.T) {
	c := config(sched.Credit)
	c.Watchdog.Limit, c.Watchdog.Grace, c.Watchdog.Offences = 100*ms, 10*ms, 3
	r, err := model.NewRig(c, guests(
		model.Node{Name: "bad", Nodes: []model.Node{{Name: "p", Count: 3, Load: busy(ms)}, process("sibling", busy(ms))}},
		process("good", busy(ms))), 1)
	require.NoError(t, err)
	var quarantined sched.ID
	r.OnAlert = func(a sched.Alert) bool {
		if a.Kind == sched.Quarantine {
			quarantined = a.Guest
		}
		return false
	}
	for i := range 3 {
		require.NoError(t, r.Run(time.Duration(i+1)*s))
		require.Zero(t, quarantined)
		r.Poison(r.Clients[i])
	}
	require.NoError(t, r.Run(5*s))
	require.Equal(t, r.Clients[0].Guest, quarantined)
	done, good := r.Clients[3].Stats.Done, r.Clients[4].Stats.Done
	require.Zero(t, r.Clients[4].Stats.Aborted+r.Clients[3].Stats.Aborted, "the innocent are not aborted")
	require.NoError(t, r.Run(6*s))
	require.Equal(t, done, r.Clients[3].Stats.Done)
	require.InDelta(t, 1000, r.Clients[4].Stats.Done-good, 5, "the card is all the others'")
	require.True(t, r.Sched.Release(r.Now, quarantined))
	require.NoError(t, r.Run(7*s))
	require.Greater(t, r.Clients[3].Stats.Done, done)
}

// TestUnresponsiveCard: a card that completes nothing any more is reported once, and
// nothing spins.
func TestUnresponsiveCard(t *testing.T) {
	for _, p := range append([]sched.Policy{sched.None}, fair...) {
		c := config(p)
		c.Watchdog.Limit, c.Watchdog.Grace = 100*ms, 10*ms
		r, err := model.NewRig(c, guests(process("a", busy(ms)), process("b", busy(ms))), 1)
		require.NoError(t, err)
		kinds := map[sched.AlertKind]int{}
		r.OnAlert = func(a sched.Alert) bool { kinds[a.Kind]++; return true } // nor does it abort
		require.NoError(t, r.Run(s))
		r.Card.Unresponsive = true
		steps := r.Steps
		require.NoError(t, r.Run(100*s))
		require.Equal(t, map[sched.AlertKind]int{sched.Warn: 1, sched.Abort: 1, sched.Reset: 1}, kinds, p)
		require.EqualValues(t, 1, r.Sched.Counts.Stuck)
		require.Less(t, r.Steps-steps, 3000, "%v: it spins", p)
		r.Card.Unresponsive = false
		require.NoError(t, r.Run(102*s))
		require.Greater(t, r.Clients[0].Stats.Done+r.Clients[1].Stats.Done, 1900, "%v: it continues", p)
		checkLedger(t, r)
	}
}

// TestSemaphoreBetweenGroups: a process that waits for another of its guest's, while that
// one is gated, does not stop others.
func TestSemaphoreBetweenGroups(t *testing.T) {
	for _, p := range append([]sched.Policy{sched.None, sched.FIFO}, fair...) {
		c := config(p)
		c.Watchdog.Limit = 0 // it must not need the watchdog
		r, err := model.NewRig(c, guests(
			model.Node{Name: "g", Nodes: []model.Node{process("waits", busy(ms)), process("signals", busy(ms))}},
			process("other", busy(ms))), 1)
		require.NoError(t, err)
		r.Chain(r.Clients[0], r.Clients[1]) // each request of the first waits for one of the second
		require.NoError(t, r.Run(20*s))
		t.Logf("%v: %d, %d, %d; %d samples spoilt", p, r.Clients[0].Stats.Done, r.Clients[1].Stats.Done, r.Clients[2].Stats.Done, r.Sched.Counts.Spoilt)
		require.Greater(t, r.Clients[0].Stats.Done, 1000, "%v: deadlock", p)
		require.Greater(t, r.Clients[2].Stats.Done, 5000, "%v", p)
		if p == sched.DFQ {
			require.NotZero(t, r.Sched.Counts.Spoilt, "no sample met the wait, so this proves nothing")
		}
		checkLedger(t, r)
	}
}
