package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

const ms = time.Millisecond

func draw(t *testing.T, l throttle.Load, seed uint64, n int) (out []throttle.Request) {
	require.NoError(t, l.Check(""))
	s := throttle.NewSource(l, seed)
	for range n {
		r, ok := s.Next()
		if !ok {
			return out
		}
		out = append(out, r)
	}
	return out
}

func TestSource(t *testing.T) {
	l := throttle.Load{Busy: ms, BusyMost: 3 * ms, Copies: 250, CopyBusy: 7 * ms}
	first := draw(t, l, 1, 4000)
	require.Equal(t, first, draw(t, l, 1, 4000), "the same seed")
	require.NotEqual(t, first, draw(t, l, 2, 4000), "another")
	copies, sum := 0, time.Duration(0)
	for _, r := range first {
		if r.Copy {
			copies++
			require.Equal(t, 7*ms, r.Busy)
			continue
		}
		require.True(t, r.Busy >= ms && r.Busy <= 3*ms)
		sum += r.Busy
	}
	require.InDelta(t, 1000, copies, 100)
	require.InDelta(t, float64(2*ms), float64(sum)/float64(4000-copies), float64(ms)/20)
	require.Len(t, draw(t, throttle.Load{Busy: ms, Requests: 5}, 1, 100), 5)
}

func TestDefaults(t *testing.T) {
	l := throttle.Load{Busy: ms}
	require.NoError(t, l.Check(""))
	require.Equal(t, throttle.Load{Busy: ms, Burst: 1, Ahead: 2, CopyBusy: ms}, l)
	l = throttle.Load{Busy: ms, Think: ms}
	require.NoError(t, l.Check(""))
	require.Equal(t, 1, l.Ahead, "a process that thinks waits first")
}

func TestErrors(t *testing.T) {
	for want, l := range map[string]throttle.Load{
		"x.busy: 0s: must be 1µs to 1m0s":             {},
		"x.busy-most: 500µs: must be 1ms to 1m0s":     {Busy: ms, BusyMost: ms / 2},
		"x.think: -1ms: must be 0s to 1h0m0s":         {Busy: ms, Think: -ms},
		"x.copies: 1001: must be 0 to 1000":           {Busy: ms, Copies: 1001},
		"x.burst: -1: must be 1 to 65536":             {Busy: ms, Burst: -1},
		"x.ahead: 2000: must be 1 to 1024":            {Busy: ms, Ahead: 2000},
		"x.requests: -4: must be 0 to 1073741824":     {Busy: ms, Requests: -4},
		"x.life: 2h0m0s: must be 0s to 1h0m0s":        {Busy: ms, Life: 2 * time.Hour},
		"x.copy-busy: 500ns: must be 1µs to 1m0s":     {Busy: ms, CopyBusy: 500},
		"x.alone: 1h0m0s: must be 0s to 1m0s":         {Busy: ms, Alone: time.Hour},
		"x.start: -1ns: must be 0s to 1h0m0s":         {Busy: ms, Start: -1},
		"x.stop: 1h0m0.000000001s: must be 0s to 1h0": {Busy: ms, Stop: time.Hour + 1},
	} {
		require.ErrorContains(t, l.Check("x."), want)
	}
}
