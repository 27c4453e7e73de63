package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// event has the card report a non-stall event, and returns how many reads of its memory
// that caused.
func (f *fakeCard) event(a *Aggregator) int {
	f.mu.Lock()
	f.looks = 0
	f.mu.Unlock()
	f.set(regEngEvent, 1<<gf100.EngineCE0)
	a.routeMu.Lock()
	a.routeEngines()
	a.routeMu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// TestEventCost: an event goes to the guests whose channels run. Its cost does not
// grow with hundreds of idle channels.
func TestEventCost(t *testing.T) {
	a, f := newAgg(t, Options{})
	events := func(g *Guest) uint64 { return g.stats.EngineEvents.Load() }
	var guests []*Guest
	for _, name := range []string{"a", "b", "c"} {
		g, _ := addGuest(t, a, name)
		guests = append(guests, g)
		for id := range uint8(8) {
			bindChannel(t, g, id)
		}
	}
	f.event(a) // they were bound, and may have run
	require.Zero(t, f.event(a), "nothing runs")
	g := guests[1]
	before := events(g)
	g.Doorbell(3)
	require.Equal(t, 2, f.event(a), "one channel runs")
	require.Equal(t, before+1, events(g))
	require.Zero(t, f.event(a), "and was seen at its end")
	require.Equal(t, before+1, events(g))
	for _, g := range []*Guest{guests[0], guests[2]} {
		require.EqualValues(t, 1, events(g))
	}
}

// TestLastEvent: when an event in the middle is reported, all entries may already be
// fetched. The event at the end is still reported, also for a channel that was taken off
// the card in between, with all of its ring fetched, and resumed.
func TestLastEvent(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 3)
	status := regChannel + uint32(g.cardChannel(3).id)*strideChannel
	rest := f.get(status)
	count := g.stats.EngineEvents.Load
	f.event(a)
	g.Doorbell(3)
	f.set(status, rest|gf100.ChannelBusy)
	n := count()
	f.event(a)
	require.Equal(t, n+1, count())
	f.event(a)
	require.Equal(t, n+2, count(), "its work was under way")
	f.set(status, rest)
	f.event(a)
	f.event(a)
	require.Equal(t, n+3, count(), "it rests")

	for what, again := range map[string]func(){
		"enabled": func() { g.Enable(3, false); g.Enable(3, true) },
		"listed":  func() { list(t, g); list(t, g, 3) },
	} {
		n = count()
		again()
		f.event(a)
		require.Equal(t, n+1, count(), what)
		f.event(a)
		require.Equal(t, n+1, count(), what)
	}
}

// TestResetDropsEvents: when a reset returns, no event of before is left that the guest could
// get after it.
func TestResetDropsEvents(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	for range 500 {
		bindChannel(t, g, 1)
		require.NoError(t, g.Reset())
		g.mu.Lock()
		left := !g.events.empty() || g.delivering
		g.mu.Unlock()
		require.False(t, left)
	}
}

// TestResetDisablesChannels: a channel that is bound after a reset does not run until it is enabled.
func TestResetDisablesChannels(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	require.True(t, f.enabled(g.cardChannel(1)))
	require.NoError(t, g.Reset())
	g.Bind(1, 0xc0000000|instAt>>12)
	settle(g)
	require.False(t, f.enabled(g.cardChannel(1)))
}
