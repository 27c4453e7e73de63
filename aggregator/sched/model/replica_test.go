package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// The experiments of the published work, on the model card. In each, the policies
// that claim to be fair must be, and what is not must fail the same test.

const (
	us = time.Microsecond
	ms = time.Millisecond
	s  = time.Second
)

// fair are the policies that share time.
var fair = []sched.Policy{sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}

func config(p sched.Policy) sched.Config {
	c := sched.Default()
	c.Policy = p
	return c
}

func busy(d time.Duration) *throttle.Load { return &throttle.Load{Busy: d} }

// process is a guest of one process, or a process of a guest.
func process(name string, l *throttle.Load) model.Node { return model.Node{Name: name, Load: l} }

func guests(nodes ...model.Node) model.Mix { return model.Mix{Guests: nodes} }

func run(t testing.TB, c sched.Config, m model.Mix, d time.Duration) *model.Rig {
	t.Helper()
	r, err := model.NewRig(c, m, 1)
	require.NoError(t, err)
	require.NoError(t, r.Run(d))
	checkLedger(t, r)
	return r
}

// percent is a client's part of the total.
func percent(r *model.Rig, client int) float64 { return 100 * r.Share(r.Clients[client]) }

// runtime is how long a program of n requests takes.
func runtime(t testing.TB, c sched.Config, m model.Mix) time.Duration {
	t.Helper()
	r, err := model.NewRig(c, m, 1)
	require.NoError(t, err)
	k := r.Clients[0]
	for until := 100 * ms; until < 2000*s; until += 100 * ms {
		require.NoError(t, r.Run(until))
		if k.Finished() {
			return k.Stats.Last
		}
	}
	t.Fatalf("%s did not finish", k.Name)
	return 0
}

var (
	victims = scale.Of([]time.Duration{100 * us, 4171 * us},
		[]time.Duration{100 * us, 500 * us, 1000 * us, 2699 * us, 4171 * us})
	lengths = scale.Of([]time.Duration{100 * us, 1000 * us, 3 * ms, 10 * ms},
		[]time.Duration{100 * us, 200 * us, 400 * us, 700 * us, 1000 * us, 2 * ms, 3 * ms, 5 * ms, 7 * ms, 10 * ms})
)

// flatness is how far runtimes are apart.
func flatness(d []time.Duration) float64 {
	d = slices.Sorted(slices.Values(d))
	return float64(d[len(d)-1]-d[0]) / float64(d[len(d)/2])
}

// program is a victim with a second and a half of work.
func program(length time.Duration) *throttle.Load {
	return &throttle.Load{Busy: length, Requests: int(1500 * ms / length)}
}

// sweep measures a victim against rising lengths of its competitor's requests.
func sweep(t *testing.T, c sched.Config, victim time.Duration, mix func(victim, other *throttle.Load) model.Mix) (out []time.Duration) {
	for _, l := range lengths {
		out = append(out, runtime(t, c, mix(program(victim), busy(l))))
	}
	return out
}

// published is a policy with the settings of its published fairness runs.
func published(p sched.Policy) sched.Config {
	c := config(p)
	c.DFQ.Slice, c.DFQ.FreeRun = 10*ms, 50*ms
	return c
}

func twoGuests(victim, other *throttle.Load) model.Mix {
	return guests(process("victim", victim), process("throttle", other))
}

func oneGuest(merged bool) func(victim, other *throttle.Load) model.Mix {
	return func(victim, other *throttle.Load) model.Mix {
		return guests(model.Node{Name: "guest", Merged: merged, Nodes: []model.Node{process("victim", victim), process("throttle", other)}})
	}
}

// TestBase is F-base: a program's runtime does not depend on the length of another guest's
// requests. Without a scheduler it grows with them, as round robin predicts.
func TestBase(t *testing.T) {
	for _, victim := range victims {
		for _, p := range fair {
			f := flatness(sweep(t, published(p), victim, twoGuests))
			t.Logf("victim %v, %v: flatness %.2f %%", victim, p, 100*f)
			require.LessOrEqual(t, f, 0.05, "victim %v, %v", victim, p)
		}
		for _, p := range []sched.Policy{sched.None, sched.FIFO} {
			got := sweep(t, config(p), victim, twoGuests)
			require.Greater(t, flatness(got), 0.5, "%v must not look fair", p)
			for i, l := range lengths {
				predicted := time.Duration(program(victim).Requests) * (victim + l)
				require.InEpsilon(t, predicted, got[i], 0.05, "%v: victim %v against %v", p, victim, l)
			}
		}
	}
}

// TestIn is F-in: the same between two processes of one guest. It fails if the scheduler does not
// separate them.
func TestIn(t *testing.T) {
	for _, victim := range []time.Duration{victims[0], victims[len(victims)-1]} {
		for _, p := range fair {
			f := flatness(sweep(t, published(p), victim, oneGuest(false)))
			t.Logf("victim %v, %v: flatness %.2f %%", victim, p, 100*f)
			require.LessOrEqual(t, f, 0.05, "victim %v, %v", victim, p)
		}
		require.Greater(t, flatness(sweep(t, config(sched.Credit), victim, oneGuest(true))), 0.5, "one group, victim %v", victim)
	}
}

// between is a guest with one process against a guest with n.
func between(n int, victim, other *throttle.Load) model.Mix {
	return guests(process("victim", victim),
		model.Node{Name: "many", Nodes: []model.Node{{Name: "throttle", Count: n, Load: other}}})
}

// TestBetween is F-between: a guest keeps its half, however many processes the other has. As
// guests of their own those would take it.
func TestBetween(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 32} {
		for _, p := range fair {
			d := 5 * s
			if p == sched.DFQ { // the free run, and with it the lag, grows with the groups
				d = max(20*s, time.Duration(n)*15*s/2)
			}
			r := run(t, config(p), between(n, busy(ms), busy(ms)), d)
			t.Logf("N %d, %v: %.2f %%", n, p, percent(r, 0))
			require.InDelta(t, 50, percent(r, 0), 1, "N %d, %v", n, p)
		}
		r := run(t, config(sched.Credit), guests(process("victim", busy(ms)), model.Node{Name: "throttle", Count: n, Load: busy(ms)}), 10*s)
		require.InDelta(t, 100/float64(n+1), percent(r, 0), 1, "flat, N %d", n)
	}
}

// TestModelChargeBetween: with the model charge, a weight that was in the
// sum as well would nearly cancel.
func TestModelChargeBetween(t *testing.T) {
	for _, free := range []time.Duration{0, 50 * ms} {
		for _, byModel := range []bool{false, true} {
			c := config(sched.DFQ)
			c.DFQ.Model, c.DFQ.FreeRun = byModel, free
			r := run(t, c, between(8, busy(ms), busy(ms)), 30*s)
			t.Logf("free run %v, model %v: %.1f %%", free, byModel, percent(r, 0))
			switch {
			case !byModel:
				require.InDelta(t, 50, percent(r, 0), 1)
			case free == 0:
				require.InDelta(t, 50, percent(r, 0), 6)
			default:
				// Sampling is not charged, and takes much time compared with a short free
				// run: a guest with many processes gains.
				require.Less(t, percent(r, 0), 44.0)
			}
		}
	}
}

// TestCredit has the figures of the rule that credit is.
func TestCredit(t *testing.T) {
	for _, c := range []struct {
		name string
		mix  model.Mix
		want float64 // of the first, in percent
		off  float64
		lag  time.Duration
	}{
		{"4171 against 100 us", guests(process("a", busy(4171*us)), process("b", busy(100*us))), 50, 1, 15 * ms},
		{"nine", guests(model.Node{Name: "a", Count: 9, Load: busy(ms)}), 100.0 / 9, 0.3, 15 * ms},
		{"3 to 1", guests(model.Node{Name: "a", Weight: 300, Load: busy(ms)}, process("b", busy(ms))), 75, 1, 15 * ms},
		{"1 to 2 to 4", guests(model.Node{Name: "a", Weight: 100, Load: busy(700 * us)}, model.Node{Name: "b", Weight: 200, Load: busy(3 * ms)},
			model.Node{Name: "c", Weight: 400, Load: busy(300 * us)}), 100.0 / 7, 1, 30 * ms},
		{"60 ms against 100 us", guests(process("a", busy(60*ms)), process("b", busy(100*us))), 50, 1, 130 * ms},
		{"one idle", guests(process("a", busy(ms)), process("b", &throttle.Load{Busy: ms, Start: time.Hour})), 100, 0, ms},
	} {
		r := run(t, config(sched.Credit), c.mix, 15*s)
		t.Logf("%s: %.2f %%, lag %v, Jain %.4f, efficiency %.3f", c.name, percent(r, 0), r.Clients[0].Stats.Lag, r.Jain(), r.Efficiency())
		require.InDelta(t, c.want, percent(r, 0), c.off, c.name)
		for _, k := range r.Clients {
			require.Less(t, k.Stats.Lag, c.lag, "%s: %s", c.name, k.Name)
		}
		require.GreaterOrEqual(t, r.Jain(), 0.99, c.name)
		require.GreaterOrEqual(t, r.Efficiency(), 0.999, c.name)
	}
}

// TestMetrics holds every fair policy against the targets, and none against them
// too: it must miss.
func TestMetrics(t *testing.T) {
	mixes := []struct {
		name string
		mix  model.Mix
	}{
		{"NN and throttle", guests(process("nn", busy(4171*us)), process("throttle", busy(100*us)))},
		{"three lengths, 1:2:4", guests(model.Node{Name: "a", Weight: 400, Load: busy(5 * ms)}, model.Node{Name: "b", Weight: 200, Load: busy(ms)}, model.Node{Name: "c", Weight: 100, Load: busy(2 * ms)})},
		{"drawn lengths", guests(process("a", &throttle.Load{Busy: 50 * us, BusyMost: 9 * ms}), process("b", &throttle.Load{Busy: 200 * us, BusyMost: ms}))},
		{"bursts", guests(process("a", &throttle.Load{Busy: 200 * us, Burst: 50}), process("b", &throttle.Load{Busy: 3 * ms}))},
	}
	for _, m := range mixes {
		base := run(t, config(sched.None), m.mix, 15*s)
		require.Greater(t, base.ShareError(), 0.05, m.name)
		require.Less(t, base.Jain(), 0.99, m.name)
		for _, p := range fair {
			if p != sched.DFQ { // with a free run of more than a point of so short a time
				r, err := model.NewRig(config(p), m.mix, 1)
				require.NoError(t, err)
				require.NoError(t, r.Run(2*s))
				require.LessOrEqual(t, r.ShareError(), 0.01, "%s, %v, 2 s", m.name, p)
			}
			r := run(t, config(p), m.mix, 15*s)
			t.Logf("%s, %v: error %.2f points, Jain %.4f, efficiency %.3f, lag %v", m.name, p, 100*r.ShareError(), r.Jain(), r.Efficiency()/base.Efficiency(), lag(r))
			require.LessOrEqual(t, r.ShareError(), 0.01, "%s, %v", m.name, p)
			require.GreaterOrEqual(t, r.Jain(), 0.99, "%s, %v", m.name, p)
			require.GreaterOrEqual(t, r.Efficiency()/base.Efficiency(), 0.95, "%s, %v", m.name, p)
		}
	}
}

func lag(r *model.Rig) (most time.Duration) {
	for _, k := range r.Clients {
		most = max(most, k.Stats.Lag)
	}
	return most
}

// TestLag: the lag of each client is bounded by the policy's tolerance plus two of the
// longest requests.
func TestLag(t *testing.T) {
	for _, long := range []time.Duration{ms, 4171 * us, 20 * ms, 60 * ms} {
		mix := guests(process("a", busy(long)), process("b", busy(100*us)), process("c", busy(700*us)))
		for _, p := range fair {
			c := config(p)
			threshold := c.Credit.Period
			switch p {
			case sched.Timeslice: // the others' slices
				threshold = 2 * c.Timeslice.Slice
			case sched.DFQ: // a free run with all slices before it, which a long request draws out
				season := 3 * max(c.DFQ.Slice, min(4*c.DFQ.Slice, 5*long)+long)
				threshold = time.Duration(c.DFQ.Factor+1) * season
			}
			r := run(t, c, mix, 15*s)
			t.Logf("%v, %v: lag %v of %v", long, p, lag(r), threshold+2*long)
			require.LessOrEqual(t, lag(r), threshold+2*long, "%v, %v", long, p)
		}
		require.Greater(t, lag(run(t, config(sched.None), mix, 15*s)), s)
	}
}

// TestLagAhead: the most early forwarding does not raise the lag above that bound.
func TestLagAhead(t *testing.T) {
	for _, ahead := range []time.Duration{200 * us, 10 * ms} {
		for _, long := range []time.Duration{900 * us, 60 * ms} {
			mix := guests(process("a", &throttle.Load{Busy: long, Ahead: 8}), process("b", &throttle.Load{Busy: 100 * us, Ahead: 8}),
				process("c", &throttle.Load{Busy: 50 * us, BusyMost: 700 * us, Ahead: 8}))
			for _, p := range []sched.Policy{sched.Credit, sched.Band} {
				c := config(p)
				c.Ahead = ahead
				r := run(t, c, mix, 10*s)
				longest := max(long, 700*us)
				t.Logf("ahead %v, %v, %v: lag %v of %v, %d on the card", ahead, long, p, lag(r), c.Credit.Period+2*longest, r.MostOnCard)
				require.LessOrEqual(t, lag(r), c.Credit.Period+2*longest, "ahead %v, %v, %v", ahead, long, p)
				require.Greater(t, r.MostOnCard, 1, "nothing went ahead, so nothing is shown")
			}
		}
	}
}

func checkLedger(t testing.TB, r *model.Rig) {
	t.Helper()
	require.NoError(t, model.CheckLedger(r.Sched.Ledger(r.Now)))
}
