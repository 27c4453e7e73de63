package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// TestFair: the shares of loads on an infinitely divisible card.
func TestFair(t *testing.T) {
	for _, c := range []struct {
		name string
		mix  model.Mix
		want []float64 // percent of the time
	}{
		{"weights", guests(model.Node{Name: "a", Weight: 300, Load: busy(ms)}, process("b", busy(7*ms))), []float64{75, 25}},
		{"a pause of two services, at half the card", guests(process("gaps", &throttle.Load{Busy: 100 * us, Think: 200 * us}), process("full", busy(4*ms))), []float64{25, 75}},
		{"pauses of both", guests(process("a", &throttle.Load{Busy: ms, Think: 9 * ms}), process("b", &throttle.Load{Busy: ms, Think: 9 * ms, Start: 5 * ms})), []float64{10, 10}},
		{"a cap and what it leaves", guests(model.Node{Name: "c", Cap: 200, Load: busy(ms)}, process("a", busy(ms)), process("b", busy(ms))), []float64{20, 40, 40}},
		{"a tree", guests(process("a", busy(ms)), model.Node{Name: "vm", Nodes: []model.Node{process("p", busy(ms)), process("q", busy(2*ms))}}), []float64{50, 25, 25}},
		{"a priority", guests(model.Node{Name: "high", Priority: 1, Load: &throttle.Load{Busy: ms, Think: ms}}, process("low", busy(ms))), []float64{50, 50}},
		{"copies in parallel", guests(process("copies", &throttle.Load{Busy: ms, Copies: 1000, CopyBusy: ms}), process("computes", busy(ms))), []float64{0, 100}},
		{"bursts that end", guests(process("a", &throttle.Load{Busy: ms, Burst: 10, Requests: 100})), []float64{1}},
	} {
		r, err := model.NewRig(config(sched.Credit), c.mix, 1)
		require.NoError(t, err)
		for i, d := range r.Fair(10 * s) {
			require.InDelta(t, c.want[i], 100*d.Seconds()/10, 0.2, "%s: %s", c.name, r.Clients[i].Name)
		}
	}
}
