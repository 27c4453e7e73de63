package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
)

func usedGPU(name string, traps uint64, busy time.Duration) api.GPU {
	return api.GPU{Name: name, Clients: 1, Attached: true, Traps: traps, Bytes: 1000 * traps, Faults: traps / 100,
		CardTime: &api.LedgerNode{Weight: 100, Waiting: 3, Engines: []api.EngineAccount{
			{Engine: "graphics", Account: sched.Account{Busy: busy / 2}}, {Engine: "copy 0", Account: sched.Account{Busy: busy}},
		}}}
}

// TestUses: rates are of the time between two looks, also when a GPU is new, its client restarted, or the server restarted.
func TestUses(t *testing.T) {
	before := api.Status{Uptime: 10 * time.Second, GPUs: []api.GPU{usedGPU("a", 1000, time.Second), usedGPU("b", 500, 0)}}
	after := api.Status{Uptime: 12 * time.Second, GPUs: []api.GPU{usedGPU("a", 1400, 2*time.Second), usedGPU("b", 100, time.Second/2), usedGPU("c", 200, 0)}}
	list := usesOf(&before, &after, time.Unix(5, 0))
	require.Equal(t, gpuUse{
		Time: time.Unix(5, 0), GPU: "a", Attached: true, Weight: 100, Busy: 50, Engines: []engineUse{{"graphics", 25}, {"copy 0", 50}}, Waiting: 3,
		Bytes: 200_000, Traps: 200, Faults: 14, NewFaults: 4,
	}, list[0])
	require.Equal(t, []float64{50, 100}, []float64{list[1].Traps, list[2].Traps})
	require.Equal(t, []float64{25, 0}, []float64{list[1].Busy, list[2].Busy})
	order := func(by string) (names string) {
		sortUses(list, by)
		for i := range list {
			names += list[i].GPU
		}
		return names
	}
	require.Equal(t, []string{"abc", "abc", "acb", "acb"}, []string{order("name"), order("busy"), order("traps"), order("faults")})

	young := api.Status{Uptime: time.Second, GPUs: []api.GPU{usedGPU("a", 1400, 0)}}
	require.EqualValues(t, 1400, usesOf(&after, &young, time.Time{})[0].Traps)

	m := &topModel{topCmd: &topCmd{Sort: "name"}, uses: list, last: after}
	sortUses(m.uses, m.Sort)
	for _, key := range []string{"down", "down", "down", "up", "enter", "s"} {
		m.key(key)
	}
	require.Equal(t, "traps", m.Sort)
	require.Equal(t, "b", m.detail)
	view := m.View().Content
	require.Regexp(t, `(?m)^  a +attached +- +100 +50% +3 +0 +0 +200 +0 +14$`, view)
	require.Regexp(t, `b, .* of VRAM\n  engine +busy\n  graphics +12.5%\n  copy 0 +25.0%`, view)
	for line := range strings.Lines(view) {
		require.LessOrEqual(t, len(line), 81, line)
	}
}
