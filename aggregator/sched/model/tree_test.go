package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// drawTree draws a tree of three or four levels in which some leaves stay idle.
func drawTree(t *rapid.T) model.Mix {
	var draw func(depth int, name string) model.Node
	draw = func(depth int, name string) model.Node {
		n := model.Node{Name: name, Weight: rapid.SampledFrom([]int{100, 100, 200, 300}).Draw(t, "weight")}
		if depth >= 3 || depth > 0 && rapid.Bool().Draw(t, "leaf") {
			l := busy(rapid.SampledFrom([]time.Duration{300 * us, ms, 2 * ms, 4 * ms}).Draw(t, "length"))
			if rapid.IntRange(0, 4).Draw(t, "idle") == 0 {
				l.Start = time.Hour
			}
			n.Load = l
			return n
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "children") {
			n.Nodes = append(n.Nodes, draw(depth+1, fmt.Sprint("n", i)))
		}
		return n
	}
	var m model.Mix
	for i := range rapid.IntRange(2, 3).Draw(t, "guests") {
		m.Guests = append(m.Guests, draw(0, fmt.Sprint("g", i)))
	}
	m.Guests = append(m.Guests, model.Node{Name: "always", Load: busy(ms)})
	return m
}

// TestShareLaw: in any tree, a leaf gets the product of its ancestors' parts
// among their siblings that have work.
func TestShareLaw(t *testing.T) {
	trees := rapid.Custom(drawTree)
	for _, p := range fair {
		for seed := range 10 {
			mix := trees.Example(seed)
			c := config(p)
			c.DFQ.FreeRun = 50 * ms
			r := run(t, c, mix, 12*s)
			require.LessOrEqual(t, r.ShareError(), 0.01, "%v, tree %d: %+v", p, seed, mix)
			if p != sched.DFQ { // with a lag that is large against a small leaf's ideal time in so short a time
				require.GreaterOrEqual(t, r.Jain(), 0.99, "%v, tree %d", p, seed)
			}
			require.GreaterOrEqual(t, r.Efficiency(), 0.999, "%v, tree %d", p, seed)
		}
	}
	worst := 0.0
	for seed := range 10 {
		worst = max(worst, run(t, config(sched.None), trees.Example(seed), 5*s).ShareError())
	}
	require.Greater(t, worst, 0.05, "the card by itself does it too: this proves nothing")
}

// TestCaps: a node gets no more than its cap, even alone; the rest is others'.
func TestCaps(t *testing.T) {
	for _, p := range append(fair[:len(fair):len(fair)], sched.None, sched.FIFO) {
		c := config(p)
		capped := model.Node{Name: "capped", Cap: 200, Nodes: []model.Node{{Name: "p", Count: 2, Load: busy(ms)}}}
		r := run(t, c, guests(capped), 10*s)
		require.InDelta(t, 0.2, r.Efficiency(), 0.01, "%v alone", p)
		r = run(t, c, guests(capped, process("a", busy(ms)), process("b", busy(2*ms))), 20*s)
		require.LessOrEqual(t, percent(r, 0)+percent(r, 1), 21.0, "%v", p)
		require.GreaterOrEqual(t, r.Efficiency(), 0.99, "%v", p)
		if p != sched.None && p != sched.FIFO {
			require.InDelta(t, percent(r, 2), percent(r, 3), 2, "%v: the rest of the cap is shared", p)
		}
	}
}

// TestPriorities: the higher has all it wants, the lower what is left.
func TestPriorities(t *testing.T) {
	for _, p := range []sched.Policy{sched.FIFO, sched.Credit, sched.Band, sched.Timeslice} {
		half := &throttle.Load{Busy: ms, Think: ms}
		r := run(t, config(p), guests(process("low", busy(200*us)), model.Node{Name: "high", Priority: 3, Load: half}), 10*s)
		require.InDelta(t, 100-percent(r, 1), percent(r, 0), 0.1)
		if p != sched.Timeslice { // which lets the low one finish its slice
			require.GreaterOrEqual(t, percent(r, 1), 45.0, p)
		}
		r = run(t, config(p), guests(process("low", busy(200*us)), model.Node{Name: "high", Priority: 3, Load: busy(ms)}), 10*s)
		require.Less(t, percent(r, 0), 1.0, p)
	}
}

// TestEngines: each engine is shared by itself, and copies are in the books.
func TestEngines(t *testing.T) {
	for _, p := range fair {
		r := run(t, config(p), guests(
			process("copies", &throttle.Load{Busy: ms, Copies: 1000, CopyBusy: 2 * ms}),
			process("both", &throttle.Load{Busy: ms, Copies: 500, CopyBusy: 300 * us, Ahead: 32}),
			process("computes", busy(3*ms))), 20*s)
		for i, k := range r.Clients {
			for e := range model.Engines {
				a, ok := r.Sched.Account(r.Now, k.Node, e)
				require.True(t, ok)
				require.InDelta(t, float64(k.Stats.Busy[e]), float64(a.Busy), 0.001*float64(20*s), "%v, %s, engine %d", p, k.Name, e)
				if want := [3][2]bool{{false, true}, {true, true}, {true, false}}[i][e]; want {
					require.Greater(t, a.Busy, r.Now/20, "%v, %s, engine %d", p, k.Name, e)
				}
			}
		}
		require.InDelta(t, 50, percent(r, 2), 3, "%v: the graphics engine is two's", p)
	}
}

// TestPhases: the cost of exclusive samples is a part of the time that does not grow with
// the number of groups: 1 in 1 + X.
func TestPhases(t *testing.T) {
	for _, n := range scale.Of([]int{8, 32}, []int{8, 2, 4, 16, 32, 64}) {
		c := config(sched.DFQ)
		r, err := model.NewRig(c, guests(model.Node{Name: "g", Count: n, Load: busy(ms)}), 1)
		require.NoError(t, err)
		var phases [4]float64 // free run, drain, sample, settle
		const steps = 60_000
		for i := range steps {
			require.NoError(t, r.Run(time.Duration(i)*997*us))
			phases[r.Sched.Engines[model.Graphics].DFQ.Phase]++
		}
		samples, drain := (phases[2]+phases[3])/steps, phases[1]/steps
		t.Logf("%2d groups: %.1f %% in samples, %.1f %% in drains", n, 100*samples, 100*drain)
		// In a cycle of n slices, X times as long a free run, and a drain. Held groups are
		// not sampled, which makes it less.
		require.InDelta(t, (1-drain)/float64(1+c.DFQ.Factor), samples, 0.005, "%d groups", n)
		require.LessOrEqual(t, drain, 0.08)
	}
}
