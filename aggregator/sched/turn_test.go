package sched_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// rivals are two guests with a channel each, and work. An engine works for one, in small parts, although
// its turn is over and the other waits. Then its channel ends.
func rivals(t *testing.T, p sched.Policy, parts int, part time.Duration, end func(b *fixture, g, group, ch sched.ID) (next sched.ID)) (b *fixture, waits, debtor sched.ID) {
	c := sched.Default()
	c.Policy, c.Watchdog.Limit = p, 0
	b = newFixture(t, c)
	g := b.node(t, sched.Card, sched.NodeConfig{Name: "debtor"})
	group := b.node(t, g, sched.NodeConfig{})
	debtor = b.channel(t, group, 0)
	waits = b.node(t, sched.Card, sched.NodeConfig{Name: "waits"})
	other := b.channel(t, b.node(t, waits, sched.NodeConfig{}), 0)
	b.submit(debtor, 1)
	b.drain()
	b.s.Stall(b.now, debtor, true)
	b.submit(other, 2000)
	b.drain()
	for range parts {
		b.now += part
		b.s.Complete(b.now, sched.Done{Channel: debtor, Busy: part})
	}
	b.s.Stall(b.now, debtor, false)
	debtor = end(b, g, group, debtor)
	b.submit(debtor, 2000)
	return b, waits, debtor
}

// TestDebtIsNotForgiven: a guest that took much while another waited gets nothing until the other has
// had its share of that time, whatever the guest does to its channels and processes.
func TestDebtIsNotForgiven(t *testing.T) {
	const parts, part = 100, 7 * ms
	for name, end := range map[string]func(b *fixture, g, group, ch sched.ID) sched.ID{
		"goes on": func(_ *fixture, _, _, ch sched.ID) sched.ID { return ch },
		"binds its channel again": func(b *fixture, _, group, ch sched.ID) sched.ID {
			b.s.Aborted(b.now, ch)
			b.s.Remove(b.now, ch)
			return b.channel(t, group, 0)
		},
		"begins another process": func(b *fixture, g, group, _ sched.ID) sched.ID {
			b.s.Remove(b.now, group)
			return b.channel(t, b.node(t, g, sched.NodeConfig{}), 0)
		},
	} {
		for _, p := range []sched.Policy{sched.Credit, sched.Band, sched.Timeslice, sched.DFQ} {
			b, waits, debtor := rivals(t, p, parts, part, end)
			for b.done[debtor] < 25 && b.now < 10*time.Second && b.step(10*time.Second) {
				b.drain()
			}
			a, _ := b.s.Account(b.now, waits, 0)
			require.GreaterOrEqual(t, a.Busy, parts*part/2, "%s, %v", name, p)
		}
	}
}

// TestTimeWithoutEntries: time that an engine worked for a channel is charged when the channel has
// nothing on the card any more, and while it waits for a semaphore.
func TestTimeWithoutEntries(t *testing.T) {
	for _, p := range all {
		c := sched.Default()
		c.Policy = p
		b := newFixture(t, c)
		g := b.node(t, sched.Card, sched.NodeConfig{})
		ch := b.channel(t, g, 0)
		charge := func(d time.Duration) {
			before, _ := b.s.Account(b.now, g, 0)
			b.now += d
			b.s.Complete(b.now, sched.Done{Channel: ch, Busy: d})
			after, _ := b.s.Account(b.now, g, 0)
			require.Equal(t, d, after.Busy-before.Busy, p)
		}
		charge(ms)
		b.submit(ch, 1)
		b.drain()
		b.s.Stall(b.now, ch, true)
		charge(5 * ms)
		require.Zero(t, b.s.Counts.BadEvents+b.s.Counts.BadTimes)
		require.NoError(t, b.s.Twin())
	}
}

// TestReleasedWaitsForItsTurn: requests whose semaphore is released need a turn. Without one their
// channel is paused, at its turn it is resumed, and an idle engine has it at once.
func TestReleasedWaitsForItsTurn(t *testing.T) {
	for _, p := range []sched.Policy{sched.FIFO, sched.Credit, sched.Band} {
		c := sched.Default()
		c.Policy = p
		b := newFixture(t, c)
		var ch [3]sched.ID
		for i := range ch {
			ch[i] = b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
		}
		for _, id := range ch[:2] {
			b.submit(id, 1)
			require.Len(t, b.drain(), 1)
			b.s.Stall(b.now, id, true)
		}
		b.s.Stall(b.now, ch[0], false)
		require.Equal(t, []sched.Forward{{Channel: ch[0]}}, b.drain(), "the engine is idle")
		b.s.Stall(b.now, ch[1], false)
		require.Equal(t, []sched.Forward{{Channel: ch[1], Pause: true}}, b.drain(), "the engine has one")
		b.submit(ch[2], 1)
		require.Empty(t, b.drain())
		require.NoError(t, b.s.Twin())
		b.step(b.now + ms)
		require.Equal(t, sched.Forward{Channel: ch[1]}, b.drain()[0], "it is resumed before what came later")
		b.run(b.now + 10*ms)
		require.Equal(t, []int{1, 1, 1}, []int{b.done[ch[0]], b.done[ch[1]], b.done[ch[2]]})
	}
}

// TestOtherEngineThanExpected: a request that uses another engine than its channel was expected to use
// loses its turn to a channel that waits for that engine.
func TestOtherEngineThanExpected(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band, sched.Timeslice, sched.DFQ} {
		c := sched.Default()
		c.Policy = p
		b := newFixture(t, c)
		long := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
		short := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 1)
		b.submit(long, 2) // the second waits, and is no reason to pause the first
		b.drain()
		work := func() (paused bool) {
			b.now += ms
			b.s.Complete(b.now, sched.Done{Channel: long, Engine: 1, Busy: ms})
			for _, f := range b.drain() {
				paused = paused || f == sched.Forward{Channel: long, Engine: 1, Pause: true}
			}
			return paused
		}
		for range 50 {
			require.False(t, work(), "nobody else waits")
		}
		b.submit(short, 1)
		rounds := 1
		for ; !work(); rounds++ {
			require.Less(t, rounds, 50, "%v: it keeps the engine", p)
		}
		require.NoError(t, b.s.Twin())
	}
}

// TestUnderway: an entry that the card has begun gets its turn although its guest has all the entries
// that may wait, and although what waits behind it is withdrawn.
func TestUnderway(t *testing.T) {
	for _, p := range all {
		c := sched.Default()
		c.Policy, c.Limits.Queued = p, 4
		b := newFixture(t, c)
		g := b.node(t, sched.Card, sched.NodeConfig{})
		first, second := b.channel(t, g, 0), b.channel(t, g, 0)
		b.submit(first, 4)
		b.s.Underway(b.now, second)
		require.Zero(t, b.s.Submit(b.now, second, 1))
		b.s.Withdraw(b.now, second)
		require.NoError(t, b.s.Twin())
		trace := b.drain()
		for len(trace) > 0 && !slices.Contains(trace, sched.Forward{Channel: second}) {
			require.True(t, b.step(b.now+time.Second), p)
			trace = b.drain()
		}
		require.NotEmpty(t, trace, "%v: it got no turn", p)
		b.s.Complete(b.now, sched.Done{Channel: second, Entries: 1})
		require.Zero(t, b.s.Counts.BadEvents)
		require.NoError(t, b.s.Twin())
	}
}

// TestSecondOverstays: of two channels that had an engine for a slice, only the one without a claim is
// paused for a third.
func TestSecondOverstays(t *testing.T) {
	c := sched.Default()
	c.Depth = 2
	b := newFixture(t, c)
	stays := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{Priority: 1}), 0)
	leaves := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
	b.submit(stays, 1)
	b.submit(leaves, 1)
	require.Len(t, b.drain(), 2)
	b.submit(b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0), 1)
	for range 20 {
		for _, ch := range []sched.ID{stays, leaves} {
			b.now += 10 * ms
			b.s.Complete(b.now, sched.Done{Channel: ch, Busy: 10 * ms})
		}
	}
	require.Equal(t, sched.Forward{Channel: leaves, Pause: true}, b.drain()[0])
}

// TestPoliciesLeaveNothing: a policy is left at any time with work in every state, and the next one
// does all of it.
func TestPoliciesLeaveNothing(t *testing.T) {
	for _, from := range all {
		for _, to := range all {
			c := sched.Default()
			c.Policy = from
			b := newFixture(t, c)
			for i := range 4 {
				ch := b.channel(t, b.node(t, b.node(t, sched.Card, sched.NodeConfig{Weight: 1 + 30*i}), sched.NodeConfig{}), 0)
				b.submit(ch, 1000*(4-i))
			}
			b.lengths = func(ch sched.ID, _ int) time.Duration { return time.Duration(ch&15) * 70 * us }
			b.run(400 * ms)
			c.Policy = to
			require.NoError(t, b.s.Configure(b.now, c))
			require.NoError(t, b.s.Twin())
			b.run(b.now + time.Minute)
			require.Equal(t, b.submitted, b.done, "%v, then %v", from, to)
		}
	}
}
