package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// TestIdealOfBounds: effects of caps and priorities on shares are not errors, and a policy
// that ignores them has errors.
func TestIdealOfBounds(t *testing.T) {
	const (
		ms     = time.Millisecond
		drifts = "a priority with a cap" // 1 to 3 become 1 to 2.5 among those below
	)
	leaf := func(name string, n Node) Node {
		n.Name = name
		if n.Load == nil {
			n.Load = &throttle.Load{Busy: ms}
		}
		return n
	}
	for _, c := range []struct {
		name string
		mix  []Node
		want []float64 // of the busy time
	}{
		{"a cap", []Node{leaf("c", Node{Cap: 200}), leaf("a", Node{}), leaf("b", Node{Load: &throttle.Load{Busy: 2 * ms}})}, []float64{20, 40, 40}},
		{"a cap above the share", []Node{leaf("c", Node{Cap: 600}), leaf("a", Node{})}, []float64{50, 50}},
		{"a cap alone", []Node{leaf("c", Node{Cap: 200})}, []float64{100}},
		{"caps of all", []Node{leaf("c", Node{Cap: 100}), leaf("d", Node{Cap: 300})}, []float64{25, 75}},
		{"caps in one another", []Node{{Name: "vm", Cap: 500, Nodes: []Node{leaf("c", Node{Cap: 100}), leaf("d", Node{})}}, leaf("a", Node{Weight: 100}), leaf("b", Node{Weight: 300})}, []float64{4 * 2.5, 10, 20, 60}},
		{"a priority", []Node{leaf("high", Node{Priority: 3}), leaf("low", Node{})}, []float64{100, 0}},
		{drifts, []Node{leaf("high", Node{Priority: 3, Cap: 300}), leaf("a", Node{}), leaf("b", Node{Weight: 300})}, []float64{30, 17.5, 52.5}},
		{"a priority with pauses", []Node{leaf("high", Node{Priority: 3, Load: &throttle.Load{Busy: 4 * ms, Think: 4 * ms}}), leaf("low", Node{Load: &throttle.Load{Busy: ms / 5}})}, nil},
	} {
		config := sched.Default()
		config.Policy = sched.Credit
		r, err := NewRig(config, Mix{Guests: c.mix}, 1)
		require.NoError(t, err, c.name)
		require.NoError(t, r.Run(10*time.Second), c.name)
		total, lag := 0.0, time.Duration(0)
		said := ""
		for _, k := range r.Clients {
			total += float64(k.Stats.Got)
			lag = max(lag, k.Stats.Lag)
		}
		for i, k := range r.Clients {
			ideal := 100 * float64(k.Stats.Ideal) / total
			said += fmt.Sprintf(" %.2f of %.2f", 100*r.Share(k), ideal)
			if c.want != nil {
				require.InDelta(t, c.want[i], ideal, 0.6, "%s: %s", c.name, k.Name)
			}
		}
		t.Logf("%s:%s; error %.2f points, lag %v, Jain %.4f", c.name, said, 100*r.ShareError(), lag, r.Jain())
		// Two known deviations: credit's own drift, and a client that pauses waits for a
		// request under way, and accrues ideal time meanwhile.
		if c.name == drifts || c.want == nil {
			require.LessOrEqual(t, r.ShareError(), 0.03, c.name)
			continue
		}
		require.LessOrEqual(t, r.ShareError(), 0.01, c.name)
		require.LessOrEqual(t, lag, 40*ms, c.name)
	}
	config := sched.Default()
	config.Policy = sched.None
	r, err := NewRig(config, Mix{Guests: []Node{leaf("high", Node{Priority: 3}), leaf("low", Node{})}}, 1)
	require.NoError(t, err)
	require.NoError(t, r.Run(time.Second))
	require.Greater(t, r.ShareError(), 0.4, "the card by itself knows no priorities: the ideal does not either")
}
