package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// The debt of a process that ends passes to the guest's next process, not to another guest;
// a guest keeps its debt across a reset.
func TestGateDebtStays(t *testing.T) {
	cfg := sched.Default()
	cfg.Ahead = 0
	a, m := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	debt := func(name string) time.Duration {
		for _, e := range a.Ledger() {
			if e.Name == name && e.Depth > 0 {
				return e.Debt[0]
			}
		}
		require.Fail(t, "no such node", name)
		return 0
	}
	bindChannelAt(t, g, 1, dirAt)
	bindChannelAt(t, g, 2, dirAt+0x10000)
	bindChannelAt(t, other, 1, dirAt)
	id := g.cardChannel(2).id
	writePut(g, 2, 9)
	require.Equal(t, 1, m.entries(id))
	writePut(g, 1, 9) // its sibling has work, too, and so has the other guest
	writePut(other, 1, 9)
	const ran = 20 * time.Millisecond
	m.end(id, 1, ran)
	require.Equal(t, ran, debt("space-0x110000"))
	require.Equal(t, ran, debt("a"))

	g.Bind(2, 0)
	settle(g)
	bindChannelAt(t, g, 3, dirAt+0x20000)
	bindChannelAt(t, other, 2, dirAt+0x20000)
	var got []time.Duration
	for _, e := range a.Ledger() {
		if e.Name == "space-0x120000" {
			got = append(got, e.Debt[0])
		}
	}
	require.Equal(t, []time.Duration{ran, 0}, got, "of the guest's next process, and of another guest's")
	require.NoError(t, g.Reset())
	require.Equal(t, ran, debt("a"))
}

// A guest that makes channels faster than it may gets none of the further ones, and is
// counted, until a second has passed; another guest has its own.
func TestGateStorm(t *testing.T) {
	cfg := sched.Default()
	cfg.Limits.Creations = 4 // two channels, each of a process of its own
	a, m := newGated(t, t.Cleanup, &cfg)
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for id := range uint8(4) {
		bindChannelAt(t, g, id, dirAt+uint64(id)*0x10000)
	}
	bindChannelAt(t, other, 1, dirAt)
	bound := func(g *Guest) (out []bool) {
		for id := range uint8(4) {
			out = append(out, g.cardChannel(id) != nil)
		}
		return out
	}
	require.Equal(t, []bool{true, true, false, false}, bound(g))
	require.Equal(t, []bool{false, true, false, false}, bound(other))
	require.Equal(t, uint64(2), g.Stats().OverQuota.Load())
	require.Equal(t, uint64(2), a.ScheduleCounts().Storms)
	m.clock.Add(int64(time.Second))
	bindChannelAt(t, g, 3, dirAt+0x30000)
	require.Equal(t, []bool{true, true, false, true}, bound(g))
}
