package sched_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

var all = []sched.Policy{sched.None, sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}

// fixture is a scheduler with a card that executes requests in their order, one at a time
// per engine, and counts them.
type fixture struct {
	s            *sched.Scheduler
	now          time.Duration
	card         [2][]request
	began        [2]time.Duration
	away         map[sched.ID][]away // requests of channels that are paused
	leaving      map[sched.ID]bool   // channels that are to be paused
	channels     []sched.ID
	submitted    map[sched.ID]int
	forwarded    map[sched.ID]int
	done         map[sched.ID]int
	lengths      func(ch sched.ID, i int) time.Duration
	mixedEngines bool // some entries run on another engine than those before them
}

type request struct {
	ch     sched.ID
	length time.Duration
}

type away struct {
	engine int
	request
}

func newFixture(t require.TestingT, c sched.Config) *fixture {
	s, err := sched.New(c, 2, 0)
	require.NoError(t, err)
	return &fixture{s: s, submitted: map[sched.ID]int{}, forwarded: map[sched.ID]int{}, done: map[sched.ID]int{}, away: map[sched.ID][]away{}, leaving: map[sched.ID]bool{},
		lengths: func(sched.ID, int) time.Duration { return ms }}
}

func (b *fixture) node(t require.TestingT, parent sched.ID, c sched.NodeConfig) sched.ID {
	id, err := b.s.AddNode(b.now, parent, c)
	require.NoError(t, err)
	return id
}

func (b *fixture) channel(t require.TestingT, group sched.ID, engine int) sched.ID {
	id, err := b.s.AddChannel(b.now, group, engine)
	require.NoError(t, err)
	b.channels = append(b.channels, id)
	return id
}

func (b *fixture) submit(ch sched.ID, n int) { b.submitted[ch] += b.s.Submit(b.now, ch, n) }

// drain forwards what is to be forwarded. It returns the trace.
func (b *fixture) drain() (trace []sched.Forward) {
	for {
		f, ok := b.s.Next(b.now)
		if !ok {
			return trace
		}
		trace = append(trace, f)
		if f.Pause {
			b.pause(f.Channel)
			continue
		}
		b.resume(f.Channel)
		for range f.Entries {
			e := f.Engine
			if b.mixedEngines && b.forwarded[f.Channel]%7 == 3 {
				e = 1 - e // an entry's engine is known when it is done
			}
			b.push(e, request{f.Channel, b.lengths(f.Channel, b.forwarded[f.Channel])})
			b.forwarded[f.Channel]++
		}
	}
}

// pause takes a channel's requests off the card, but for one that an engine has begun.
func (b *fixture) pause(ch sched.ID) {
	for e := range b.card {
		var keep []request
		for i, r := range b.card[e] {
			if r.ch != ch || i == 0 {
				keep = append(keep, r)
			} else {
				b.away[ch] = append(slices.Clip(b.away[ch]), away{e, r})
			}
		}
		b.card[e] = keep
	}
	b.leaving[ch] = true
	b.left(ch)
}

// left reports a channel that was to be paused when no engine works for it.
func (b *fixture) left(ch sched.ID) {
	at := func(e int) bool { return len(b.card[e]) > 0 && b.card[e][0].ch == ch }
	if b.leaving[ch] && !at(0) && !at(1) {
		delete(b.leaving, ch)
		b.s.Paused(b.now, ch)
	}
}

func (b *fixture) resume(ch sched.ID) {
	for _, a := range b.away[ch] {
		b.push(a.engine, a.request)
	}
	delete(b.away, ch)
	delete(b.leaving, ch)
}

func (b *fixture) push(e int, r request) {
	if len(b.card[e]) == 0 {
		b.began[e] = b.now
	}
	b.card[e] = append(b.card[e], r)
}

// step lets the next thing happen. It reports whether there was one.
func (b *fixture) step(until time.Duration) bool {
	next, on := min(until, b.s.Timer()), -1
	for e := range b.card {
		if len(b.card[e]) > 0 && b.began[e]+b.card[e][0].length <= next {
			next, on = b.began[e]+b.card[e][0].length, e
		}
	}
	b.now = max(b.now, next)
	if on >= 0 {
		r := b.card[on][0]
		b.card[on] = b.card[on][1:]
		b.began[on] = b.now
		b.done[r.ch]++
		b.s.Complete(b.now, sched.Done{Channel: r.ch, Engine: on, Entries: 1, Busy: r.length})
		b.left(r.ch)
	}
	return on >= 0 || b.now < until
}

func (b *fixture) run(until time.Duration) {
	for b.drain(); b.now < until && b.step(until); {
		b.drain()
	}
}

// check holds the books against what happened.
func (b *fixture) check(t require.TestingT) {
	l := b.s.Ledger(b.now)
	require.NoError(t, model.CheckLedger(l))
	for _, n := range l {
		if n.Kind == sched.Channel {
			require.Equal(t, b.submitted[n.ID], int(n.Accounts[0].Entries+n.Accounts[1].Entries), "submitted")
			require.Equal(t, b.done[n.ID], int(n.Accounts[0].Done+n.Accounts[1].Done), "done")
			require.Equal(t, b.forwarded[n.ID]-b.done[n.ID], n.Inflight[0]+n.Inflight[1], "on the card")
		}
	}
}

// TestBadEvents: time that goes back, unknown work and impossible busy times are counted, and
// have no effect.
func TestBadEvents(t *testing.T) {
	for _, p := range all {
		c := sched.Default()
		c.Policy = p
		b := newFixture(t, c)
		g := b.node(t, sched.Card, sched.NodeConfig{Name: "g"})
		b.now = 100 * ms
		ch := b.channel(t, g, 0)
		b.submit(ch, 3)
		b.drain()
		bad := uint64(0)
		counts := func(more uint64, event func()) {
			t.Helper()
			event()
			bad += more
			require.Equal(t, bad, b.s.Counts.BadEvents+b.s.Counts.BadTimes, "%v", p)
		}
		counts(2, func() { b.s.Complete(50*ms, sched.Done{Channel: ch, Entries: 1, Busy: ms}) }) // back, and before it began
		for _, d := range []sched.Done{{Channel: 12345, Entries: 1, Busy: ms}, {Channel: g, Entries: 1, Busy: ms}, {Channel: ch, Engine: 9, Entries: 1}, {Channel: ch, Entries: -1}} {
			counts(1, func() { b.s.Complete(101*ms, d) })
		}
		counts(1, func() { require.Zero(t, b.s.Submit(101*ms, 777, 1)) })
		counts(1, func() { b.s.Stall(101*ms, 777, true) })
		counts(1, func() { b.s.Aborted(101*ms, 777) })
		b.now = 102 * ms
		b.drain()
		counts(2, func() { b.s.Complete(102*ms, sched.Done{Channel: ch, Entries: 100, Busy: -5}) })
		for ok := true; ok; _, ok = b.s.Next(102 * ms) {
		}
		b.s.Complete(102*ms, sched.Done{Channel: ch, Entries: 2})
		a, _ := b.s.Account(102*ms, ch, 0)
		require.Zero(t, a.Busy, "%v", p)
		require.Equal(t, a.Entries, int64(3))
	}
}

// TestEstimateIsRefunded: the expected time of a request is in the tags while it is on the
// card, and then its measured time.
func TestEstimateIsRefunded(t *testing.T) {
	c := sched.Default()
	c.Policy = sched.DFQ // with unbounded tags
	b := newFixture(t, c)
	ch := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{Weight: 50}), 0)
	b.lengths = func(_ sched.ID, i int) time.Duration { return time.Duration(i%9+1) * 500 * us }
	b.submit(ch, 90)
	b.run(100 * ms)
	st := b.s.Freeze()
	require.Greater(t, st.Nodes[2].Lanes[0].Pending, 500*us, "two are on the card")
	require.Greater(t, st.Nodes[2].Lanes[0].Tag, int64(st.Nodes[2].Lanes[0].Account.Busy)<<10/100)
	b.run(10 * time.Second)
	st = b.s.Freeze()
	busy := st.Nodes[2].Lanes[0].Account.Busy
	require.Equal(t, 90/9*45*500*us, busy)
	require.Zero(t, st.Nodes[2].Lanes[0].Pending)
	require.InDelta(t, float64(busy<<10/100), float64(st.Nodes[2].Lanes[0].Tag), 400)
	require.InDelta(t, float64(busy<<10/50), float64(st.Nodes[1].Lanes[0].Tag), 400)
}

// TestAdded: how far a doorbell moved GP_PUT, at every place of the ring.
func TestAdded(t *testing.T) {
	const size = 16
	for old := uint32(0); old < size; old++ {
		for put := uint32(0); put < size; put++ {
			n, ok := sched.Added(old, put, size, 0)
			want := 0
			for i := old; i != put; i = (i + 1) % size {
				want++
			}
			require.True(t, ok)
			require.Equal(t, want, n)
		}
	}
	for _, c := range []struct {
		old, put, size uint32
		waiting        int
		ok             bool
	}{
		{0, 15, 16, 0, true}, {5, 4, 16, 0, true}, {5, 4, 16, 1, false}, {0, 8, 16, 7, true}, {0, 8, 16, 8, false},
		{0, 16, 16, 0, false}, {16, 0, 16, 0, false}, {0, 1, 0, 0, false}, {0, 1, 12, 0, false}, {0, 1, 16, -1, false},
	} {
		_, ok := sched.Added(c.old, c.put, c.size, c.waiting)
		require.Equal(t, c.ok, ok, "%+v", c)
	}
}

// TestErrors: an invalid value is refused with the name of the field and the allowed
// values.
func TestErrors(t *testing.T) {
	for want, spoil := range map[string]func(*sched.Config){
		"policy: 77: must be one of none, fifo":      func(c *sched.Config) { c.Policy = 77 },
		"credit.period: 10µs: must be 1ms to 1s":     func(c *sched.Config) { c.Credit.Period = 10 * us },
		"band.grace: 1s: must be 0s to 10ms":         func(c *sched.Config) { c.Band.Grace = time.Second },
		"limits.request: -1ns: must be 0s to 1h0m0s": func(c *sched.Config) { c.Watchdog.Limit = -1 },
	} {
		c := sched.Default()
		spoil(&c)
		require.ErrorContains(t, c.Check(), want)
	}
	b := newFixture(t, sched.Default())
	g := b.node(t, sched.Card, sched.NodeConfig{Name: "a"})
	b.node(t, g, sched.NodeConfig{Name: "p"})
	other := b.node(t, sched.Card, sched.NodeConfig{Name: "b"})
	ch := b.channel(t, other, 0)
	for want, c := range map[string]sched.NodeConfig{
		"weight: 10001: must be 1 to 10000":       {Weight: 10001},
		"limit: 2h0m0s: must be 0s to 1h0m0s":     {Limit: 2 * time.Hour},
		"queued: 1073741825: must be 0 to 107374": {Queued: 1<<30 + 1},
	} {
		_, err := b.s.AddNode(0, sched.Card, c)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, b.s.Change(0, other, c), want)
	}
	for _, parent := range []sched.ID{0, 99, ch} {
		_, err := b.s.AddNode(0, parent, sched.NodeConfig{})
		require.ErrorContains(t, err, "parent")
	}
	_, err := b.s.AddNode(0, other, sched.NodeConfig{})
	require.ErrorContains(t, err, "channels or groups, not both")
	_, err = b.s.AddChannel(0, g, 0)
	require.ErrorContains(t, err, "channels or groups, not both")
	_, err = b.s.AddChannel(0, other, 5)
	require.ErrorContains(t, err, "engine: 5: must be 0 to 1")
	_, err = b.s.AddNode(0, g, sched.NodeConfig{Limit: time.Second})
	require.ErrorContains(t, err, "for guests, not for groups")
	var p sched.Policy
	require.ErrorContains(t, p.UnmarshalText([]byte("creidt")), "policy: creidt: must be one of none, fifo, credit, band, timeslice, dfq")
}

// TestOwnLimits: a guest's own limit applies, whether longer or shorter than the card's or
// none. A request within a longer limit is not checked at every moment.
func TestOwnLimits(t *testing.T) {
	c := sched.Default()
	c.Watchdog.Limit = 10 * time.Second
	for limit, ends := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 3 * time.Second, time.Minute: time.Minute, sched.Forever: 0} {
		b := newFixture(t, c)
		b.lengths = func(sched.ID, int) time.Duration { return time.Hour }
		b.node(t, sched.Card, sched.NodeConfig{Name: "other", Limit: time.Second})
		g := b.node(t, sched.Card, sched.NodeConfig{Name: "a", Limit: limit})
		ch := b.channel(t, g, 0)
		b.submit(ch, 1)
		b.drain()
		looks := 0
		for a, ok := b.s.Alert(); !ok && b.now < 5*time.Minute; a, ok = b.s.Alert() {
			require.Zero(t, a)
			before := b.now
			b.step(5 * time.Minute)
			require.Greater(t, b.now, before, "it is called again immediately")
			b.drain()
			looks++
		}
		if ends == 0 {
			require.Equal(t, 5*time.Minute, b.now, "it has no limit")
		} else {
			require.InDelta(t, ends.Seconds(), b.now.Seconds(), 0.1)
		}
		require.Less(t, looks, 5000)
	}
}

// TestHeld: held counts entries left after all allowed ones were forwarded, not a short
// delay before the call.
func TestHeld(t *testing.T) {
	c := sched.Default()
	c.Ahead = 0
	b := newFixture(t, c)
	ch := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{Name: "a"}), 0)
	for i, step := range []struct {
		entries int
		held    int64
	}{{1, 0}, {3, 2}, {1, 2}} {
		b.submit(ch, step.entries)
		b.now += us // the caller is not the fastest
		b.run(b.now + 10*ms)
		a, _ := b.s.Account(b.now, ch, 0)
		require.Equal(t, step.held, a.Held, i)
		require.Equal(t, a.Entries, a.Done)
	}
}

// TestQueueLimit: entries over a guest's limit are not taken on, until some are
// done; none is lost.
func TestQueueLimit(t *testing.T) {
	b := newFixture(t, sched.Default())
	g := b.node(t, sched.Card, sched.NodeConfig{Queued: 10})
	ch := b.channel(t, g, 0)
	require.Equal(t, 10, b.s.Submit(0, ch, 25))
	require.Equal(t, 0, b.s.Submit(0, ch, 15))
	require.EqualValues(t, 30, b.s.Counts.Refused)
	b.submitted[ch] = 10
	b.drain()
	require.Equal(t, 1, b.s.Submit(0, ch, 15))
	b.submitted[ch]++
	b.check(t)
}

// TestChannelLimit: channels are bounded for each guest.
func TestChannelLimit(t *testing.T) {
	c := sched.Default()
	c.Limits.Channels = 3
	b := newFixture(t, c)
	g := b.node(t, sched.Card, sched.NodeConfig{})
	first := b.channel(t, g, 0)
	b.channel(t, g, 0)
	b.channel(t, g, 0)
	_, err := b.s.AddChannel(0, g, 0)
	require.ErrorIs(t, err, sched.ErrFull)
	require.True(t, b.s.Remove(0, first))
	require.False(t, b.s.Remove(0, first), "it is removed")
	b.channel(t, g, 0)
}

// TestWatchdogAfterAnAbort: the watchdog finds the next request that runs for too long, although the
// card last said that the engine works for a channel that was aborted since.
func TestWatchdogAfterAnAbort(t *testing.T) {
	c := sched.Default()
	c.Watchdog.Limit = time.Second
	b := newFixture(t, c)
	first := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
	second := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
	b.submit(first, 1)
	b.drain()
	b.s.Running(b.now, 0, first)
	b.s.Aborted(b.now, first)
	b.submit(second, 1)
	b.drain()
	b.now += 2 * time.Second
	b.drain()
	a, ok := b.s.Alert()
	require.True(t, ok)
	require.Equal(t, second, a.Channel)
}

// TestGraceOfTheCard: the card has the whole grace from when it was told to end a channel, however
// late that was. When the channel has left, nothing more is to be done.
func TestGraceOfTheCard(t *testing.T) {
	c := sched.Default()
	b := newFixture(t, c)
	ch := b.channel(t, b.node(t, b.node(t, sched.Card, sched.NodeConfig{}), sched.NodeConfig{}), 0)
	after := func(d time.Duration) (alerts []sched.AlertKind) {
		b.now += d
		b.drain()
		for a, ok := b.s.Alert(); ok; a, ok = b.s.Alert() {
			alerts = append(alerts, a.Kind)
		}
		return alerts
	}
	b.submit(ch, 1)
	b.drain()
	require.Equal(t, []sched.AlertKind{sched.Warn}, after(c.Watchdog.Limit))
	require.Equal(t, []sched.AlertKind{sched.Abort}, after(c.Watchdog.Grace))
	b.now += c.Watchdog.Grace
	b.drain()
	b.s.Aborting(b.now, ch)
	require.Empty(t, after(c.Watchdog.Grace-1))
	require.Equal(t, []sched.AlertKind{sched.Reset}, after(1))
	b.s.Aborting(b.now, ch)
	b.now += c.Watchdog.Grace
	b.drain()
	b.s.Aborted(b.now, ch)
	require.Empty(t, after(0))
}

// A channel that waits for a semaphore looks at it now and then. That is no part of its request,
// whatever it adds up to.
func TestWaitingIsNotRunning(t *testing.T) {
	c := sched.Default()
	b := newFixture(t, c)
	ch := b.channel(t, b.node(t, b.node(t, sched.Card, sched.NodeConfig{}), sched.NodeConfig{}), 0)
	b.submit(ch, 1)
	b.drain()
	works := func(share time.Duration) (alerts []sched.AlertKind) {
		for busy := time.Duration(0); busy < 2*c.Watchdog.Limit; busy += share {
			b.now += ms
			b.s.Complete(b.now, sched.Done{Channel: ch, Busy: share})
			b.drain()
			for a, ok := b.s.Alert(); ok; a, ok = b.s.Alert() {
				alerts = append(alerts, a.Kind)
			}
		}
		return alerts
	}
	b.s.Stall(b.now, ch, true)
	require.Empty(t, works(ms/2))
	b.s.Stall(b.now, ch, false)
	b.drain()
	b.s.Complete(b.now+ms, sched.Done{Channel: ch, Busy: ms})
	_, alert := b.s.Alert()
	require.False(t, alert, "the wait has ended")
	require.Equal(t, []sched.AlertKind{sched.Warn, sched.Abort, sched.Reset}, works(ms))
}

// TestBehindALongRequest: a request that waits on the card behind another's is not blamed for the
// time of that one.
func TestBehindALongRequest(t *testing.T) {
	c := sched.Default()
	c.Depth, c.Policy = 2, sched.FIFO // which pauses nobody
	b := newFixture(t, c)
	b.lengths = func(sched.ID, int) time.Duration { return 9 * time.Second }
	b.node(t, sched.Card, sched.NodeConfig{Limit: time.Second}) // has the watchdog look often
	for _, limit := range []time.Duration{time.Minute, 10 * time.Second} {
		b.submit(b.channel(t, b.node(t, sched.Card, sched.NodeConfig{Limit: limit}), 0), 1)
	}
	require.Len(t, b.drain(), 2, "both are on the card")
	b.run(17 * time.Second)
	require.Equal(t, []int{1, 0}, []int{b.done[b.channels[0]], b.done[b.channels[1]]})
	a, alert := b.s.Alert()
	require.False(t, alert, "%+v", a)
}
