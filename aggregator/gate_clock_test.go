package aggregator

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// last is its last setting.
func (a *fakeAlarm) last() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.set
}

func newTimed(t *testing.T, cfg *sched.Config) (*Aggregator, *meterCard, *fakeAlarm) {
	m, w := &meterCard{fakeCard: newFake(fakeVRAM)}, &fakeAlarm{c: make(chan time.Time)}
	a, err := NewWith(m, Options{Scheduler: cfg, Clock: func() time.Duration { return time.Duration(m.clock.Load()) }, alarm: w})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a, m, w
}

// If a doorbell leads to a turn only at a later time, it sets the alarm to that time, also
// during a longer sleep of the goroutine: here band keeps the card for the guest that used
// less.
func TestGateTimer(t *testing.T) {
	cfg := sched.Default()
	cfg.Policy = sched.Band
	a, m, w := newTimed(t, &cfg)
	short, _ := addGuest(t, a, "short")
	long, _ := addGuest(t, a, "long")
	bindChannel(t, short, 1)
	bindChannel(t, long, 1)
	ids := []uint8{short.cardChannel(1).id, long.cardChannel(1).id}
	run := func(g *Guest, id uint8, d time.Duration) {
		writePut(g, 1, 1)
		require.Eventually(t, func() bool { return m.entries(id) == 1 }, patience, tick)
		m.end(id, 1, d)
		a.gate.poll()
	}
	run(long, ids[1], 40*time.Millisecond)
	run(short, ids[0], 100*time.Microsecond)
	require.Eventually(t, func() bool { return w.last() > time.Minute }, patience, tick)
	writePut(long, 1, 2)
	require.Equal(t, 1, m.entries(ids[1]), "the card is kept for a moment")
	var d time.Duration
	require.Eventually(t, func() bool { d = w.last(); return d <= cfg.Band.Grace }, patience, tick, "the goroutine sleeps on")
	m.clock.Add(int64(d))
	w.c <- time.Time{}
	require.Eventually(t, func() bool { return m.entries(ids[1]) == 2 }, patience, tick)
}

// A short request goes to the card after another short one, so that the card need not idle
// in between; a long one waits until the card is idle.
func TestGateAhead(t *testing.T) {
	cfg := sched.Default()
	cfg.Ahead = time.Millisecond
	a, m, _ := newTimed(t, &cfg)
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	id := g.cardChannel(1).id
	writePut(g, 1, 8)
	require.Equal(t, 1, m.entries(id), "nothing is known of the first")
	m.end(id, 1, 200*time.Microsecond)
	require.Eventually(t, func() bool { return m.entries(id) == 5 }, patience, tick)
	m.end(id, 4, 200*time.Microsecond)
	require.Eventually(t, func() bool { return m.entries(id) == 8 }, patience, tick)
	m.end(id, 3, 20*time.Millisecond)
	writePut(g, 1, 12)
	a.gate.poll()
	require.Equal(t, 9, m.entries(id))
	require.Equal(t, time.Duration(m.clock.Load()), a.Ledger()[0].Accounts[gf100.EngineGR].Busy)
}

// A change of the share of a removed guest is an error.
func TestShareOfRemovedGuest(t *testing.T) {
	cfg := sched.Default()
	a, _, _ := newTimed(t, &cfg)
	g, _ := addGuest(t, a, "a")
	require.NoError(t, g.SetShare(sched.NodeConfig{Weight: 200}))
	require.NoError(t, g.Remove())
	require.ErrorIs(t, g.SetShare(sched.NodeConfig{Weight: 300}), ErrRemoved)
}
