package aggregator

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// fakeAlarm fires when a test says so.
type fakeAlarm struct {
	c chan time.Time

	mu  sync.Mutex
	set time.Duration
}

func (a *fakeAlarm) C() <-chan time.Time { return a.c }
func (a *fakeAlarm) Stop()               {}
func (a *fakeAlarm) Reset(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set = d
}

// fire wakes the goroutine if it sleeps.
func (a *fakeAlarm) fire() {
	select {
	case a.c <- time.Time{}:
	default:
	}
}

// last is its last setting.
func (a *fakeAlarm) last() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.set
}

// If a doorbell leads to a turn only at a later time, it sets the alarm to that time, also
// during a longer sleep of the goroutine: here band keeps the card for the guest that used
// less.
func TestGateTimer(t *testing.T) {
	w := &fakeAlarm{c: make(chan time.Time)}
	a, m := newTimed(t, w, func(c *sched.Config) { c.Policy = sched.Band })
	short, _, shortID := addRunning(t, a, "short")
	long, _, id := addRunning(t, a, "long")
	run := func(g *Guest, id uint8, d time.Duration) {
		writePut(g, 1, 1)
		require.Eventually(t, func() bool { return m.entries(id) == 1 }, patience, tick)
		m.end(id, 1, d)
		a.Ledger()
	}
	run(long, id, 40*time.Millisecond)
	run(short, shortID, 100*time.Microsecond)
	require.Eventually(t, func() bool {
		w.fire() // it may have polled before the request ended
		return w.last() > time.Minute
	}, patience, tick)
	writePut(long, 1, 2)
	require.Equal(t, 1, m.entries(id), "the card is kept for a moment")
	var d time.Duration
	require.Eventually(t, func() bool { d = w.last(); return d <= sched.Default().Band.Grace }, patience, tick, "the goroutine sleeps on")
	m.clock.Add(int64(d))
	require.Eventually(t, func() bool {
		w.fire()
		return m.entries(id) == 2
	}, patience, tick)
}

// A short request goes to the card after another short one, so that the card need not idle
// in between; a long one waits until the card is idle.
func TestGateAhead(t *testing.T) {
	a, m := newGated(t, func(c *sched.Config) { c.Ahead = time.Millisecond })
	g, _, id := addRunning(t, a, "a")
	writePut(g, 1, 8)
	require.Equal(t, 1, m.entries(id), "nothing is known of the first")
	m.end(id, 1, 200*time.Microsecond)
	require.Eventually(t, func() bool { return m.entries(id) == 5 }, patience, tick)
	m.end(id, 4, 200*time.Microsecond)
	require.Eventually(t, func() bool { return m.entries(id) == 8 }, patience, tick)
	m.end(id, 3, 20*time.Millisecond)
	writePut(g, 1, 12)
	a.Ledger()
	require.Equal(t, 9, m.entries(id))
	require.Equal(t, time.Duration(m.clock.Load()), a.Ledger()[0].Accounts[gf100.EngineGR].Busy)
}

// A change of the share of a removed guest is an error.
func TestShareOfRemovedGuest(t *testing.T) {
	a, _ := newGated(t)
	g, _ := addGuest(t, a, "a")
	require.NoError(t, g.SetShare(sched.NodeConfig{Weight: 200}))
	require.NoError(t, g.Remove())
	require.ErrorIs(t, g.SetShare(sched.NodeConfig{Weight: 300}), gate.ErrRemoved)
}

// The debt of a process that ends passes to the guest's next process, not to another guest;
// a guest keeps its debt across a reset.
func TestGateDebtStays(t *testing.T) {
	a, m := newGated(t, oneByOne)
	g, _, _ := addRunning(t, a, "a")
	other, _, _ := addRunning(t, a, "b")
	debt := func(name string) time.Duration {
		for _, e := range a.Ledger() {
			if e.Name == name && e.Depth > 0 {
				return e.Debt[0]
			}
		}
		require.Fail(t, "no such node", name)
		return 0
	}
	bindChannelAt(t, g, 2, dirAt+0x10000)
	id := number(g, 2)
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
	for _, e := range groups(a) {
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
	a, m := newGated(t, func(c *sched.Config) { c.Limits.Creations = 4 }) // two channels, each of a process of its own
	g, _ := addGuest(t, a, "a")
	other, _, _ := addRunning(t, a, "b")
	for id := range uint8(4) {
		bindChannelAt(t, g, id, dirAt+uint64(id)*0x10000)
	}
	bound := func(g *Guest) (out []bool) {
		for id := range uint8(4) {
			out = append(out, g.cardChannel(id) != nil)
		}
		return out
	}
	require.Equal(t, []bool{true, true, false, false}, bound(g))
	require.Equal(t, []bool{false, true, false, false}, bound(other))
	require.Equal(t, uint64(2), g.Stats().FIFO.OverQuota.Load())
	require.Equal(t, uint64(2), a.ScheduleCounts().Storms)
	bindChannelAt(t, g, 5, dirAt) // refused, too
	require.Len(t, g.channels.CardChannels(), 2, "a channel that is refused takes nothing of the card")
	m.clock.Add(int64(time.Second))
	bindChannelAt(t, g, 3, dirAt+0x30000)
	require.Equal(t, []bool{true, true, false, true}, bound(g))
}
