package sched_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Single rules of the policies, each by itself. docs/scheduling.md has the list.

// twoGroups are guests with a channel each, that always have n requests.
func twoGroups(t *testing.T, c sched.Config, a, b time.Duration) (k *fixture, groups [2]sched.ID, top func(n int)) {
	k = newFixture(t, c)
	for i := range groups {
		groups[i] = k.node(t, sched.Card, sched.NodeConfig{})
		k.channel(t, groups[i], 0)
	}
	k.lengths = func(ch sched.ID, _ int) time.Duration {
		if ch == k.channels[0] {
			return a
		}
		return b
	}
	return k, groups, func(n int) {
		for _, ch := range k.channels {
			k.submit(ch, n-(k.submitted[ch]-k.done[ch]))
		}
	}
}

// settle is DFQState.Phase when a slice is over and its requests have not ended.
const settle = 3

// sample runs until the group has been sampled once, and returns how many of its requests
// the sample saw, how long it was, and its mean length.
func sample(t *testing.T, b *fixture, group sched.ID, during func()) (saw int, took, each time.Duration) {
	t.Helper()
	began := time.Duration(0)
	for b.now < 10*time.Second {
		during()
		b.drain()
		st := b.s.Freeze()
		d := &st.Engines[0].DFQ
		here := st.Engines[0].Alone == group
		switch {
		case here && began == 0:
			began = d.From
		case here || began == 0:
		case d.Phase == settle && d.From == began:
			saw, took = d.Done, b.now-began
		default: // it is over
			return saw, took, st.Nodes[uint32(group)].Lanes[0].Mean
		}
		if here {
			saw, took = d.Done, b.now-began
		}
		b.step(b.now + 10*time.Second)
	}
	require.Fail(t, "it is not sampled")
	return 0, 0, 0
}

// TestSliceLength (R-D2): a slice ends after T or 96 requests, but not before five are
// done, unless 4T have passed.
func TestSliceLength(t *testing.T) {
	for length, want := range map[time.Duration]struct {
		saw  int
		took time.Duration
	}{
		10 * us:   {96, 960 * us},
		100 * us:  {50, 5 * ms},
		2700 * us: {5, 13500 * us},
		8 * ms:    {3, 24 * ms}, // the one that is under way when 4T have passed
	} {
		c := sched.Default()
		c.Policy = sched.DFQ
		b, groups, top := twoGroups(t, c, length, length)
		saw, took, each := sample(t, b, groups[0], func() { top(200) })
		require.InDelta(t, want.saw, saw, 1, "%v", length)
		require.InDelta(t, float64(want.took), float64(took), float64(length), "%v", length)
		require.Equal(t, length, each)
	}
}

// TestIdleHolder (4.4): the card waits for an idle holder for a moment, and no longer.
func TestIdleHolder(t *testing.T) {
	c := sched.Default()
	c.Policy = sched.Timeslice
	b, _, _ := twoGroups(t, c, ms, ms)
	b.submit(b.channels[0], 1)
	b.drain()
	b.submit(b.channels[1], 1)
	b.run(40 * ms)
	require.Zero(t, len(b.card[0]))
	a, _ := b.s.Account(b.now, b.channels[1], 0)
	require.Equal(t, ms+500*us+ms, a.Last) // the first, the wait, its own
}

// TestDebtBesideAnotherPriority: after a request of a minute, the next decision takes a bounded number of
// steps, also beside a guest of lower priority that owes nothing.
func TestDebtBesideAnotherPriority(t *testing.T) {
	c := sched.Default()
	c.Policy, c.Watchdog.Limit = sched.Timeslice, 0
	b := newFixture(t, c)
	long := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{Priority: 1}), 0)
	other := b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0)
	b.lengths = func(ch sched.ID, i int) time.Duration {
		if ch == long && i == 0 {
			return time.Minute
		}
		return ms
	}
	b.submit(long, 2)
	b.drain()
	b.submit(other, 2)
	for b.done[long] == 0 && b.step(time.Hour) {
		before := b.s.Freeze().Turn
		b.drain()
		require.Less(t, b.s.Freeze().Turn-before, int64(100))
	}
	require.Equal(t, 1, b.done[long])
}
