package sched_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// TestNothingFollowsAnOverrun: the end of a request that takes longer than expected is
// unknown, so no request is forwarded after it.
func TestNothingFollowsAnOverrun(t *testing.T) {
	for _, at := range []struct {
		when time.Duration
		goes bool
	}{{100 * us, true}, {20 * ms, false}} {
		b := newFixture(t, sched.Default())
		var ids []sched.ID
		for range 2 {
			ids = append(ids, b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0))
			b.submit(ids[len(ids)-1], 1)
		}
		long := false
		b.lengths = func(sched.ID, int) time.Duration {
			if long {
				return 60 * ms
			}
			return 50 * us
		}
		b.run(b.now + ms) // both are known to be short
		long = true
		b.submit(ids[0], 1)
		b.drain()
		long = false
		b.run(b.now + at.when)
		b.submit(ids[1], 8)
		b.drain()
		require.Equal(t, at.goes, len(b.card[0]) > 1, "%v after a request was begun that is thought to take 50 us", at.when)
		b.run(b.now + time.Second)
		b.check(t)
		require.Zero(t, b.submitted[ids[1]]-b.done[ids[1]])
	}
}

// TestUnknownLengths: a guest of unknown length, because each of its channels does one
// request, gains nothing from the expected length and its refund, for any length of those.
func TestUnknownLengths(t *testing.T) {
	for _, ahead := range []time.Duration{0, 200 * us, 50 * ms, time.Second} {
		c := sched.Default()
		c.Ahead, c.Limits.Creations = ahead, 1<<20
		b := newFixture(t, c)
		cheat, honest := b.node(t, sched.Card, sched.NodeConfig{}), b.node(t, sched.Card, sched.NodeConfig{})
		steady := b.channel(t, honest, 0)
		b.lengths = func(ch sched.ID, _ int) time.Duration {
			if ch == steady {
				return ms
			}
			return 4 * ms
		}
		var used [2]time.Duration
		fresh := sched.ID(0)
		for b.now < 10*time.Second {
			if fresh == 0 || b.done[fresh] == 1 {
				if fresh != 0 {
					require.True(t, b.s.Remove(b.now, fresh))
				}
				fresh = b.channel(t, cheat, 0)
				b.submit(fresh, 1)
			}
			if waiting := b.submitted[steady] - b.done[steady]; waiting < 4 {
				b.submit(steady, 4-waiting)
			}
			b.drain()
			b.step(b.now + 10*time.Second)
		}
		for i, id := range []sched.ID{cheat, honest} {
			a, _ := b.s.Account(b.now, id, 0)
			used[i] = a.Busy
		}
		share := 100 * float64(used[0]) / float64(used[0]+used[1])
		t.Logf("ahead %v: %.2f %%", ahead, share)
		require.LessOrEqual(t, share, 51.0, "ahead %v", ahead)
		if ahead <= 200*us {
			require.GreaterOrEqual(t, share, 45.0, "ahead %v", ahead)
		}
		require.NoError(t, b.s.Twin())
	}
}

// TestTrainedLengths: a guest that sends short requests first, and then long ones that are
// forwarded as if they were short, gains nothing.
func TestTrainedLengths(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band} {
		for _, ahead := range []time.Duration{200 * us, ms, 50 * ms} {
			c := sched.Default()
			c.Policy, c.Ahead = p, ahead
			b, groups, top := twoGroups(t, c, 0, ms)
			cheat, together := b.channels[0], 0
			honest := b.lengths
			b.lengths = func(ch sched.ID, i int) time.Duration {
				switch {
				case ch != cheat:
					return honest(ch, i)
				case i%68 < 64:
					return 20 * us
				}
				return 60 * ms
			}
			for b.now < 60*time.Second {
				top(8)
				b.drain()
				long := 0
				for _, r := range b.card[0] {
					if r.length == 60*ms {
						long++
					}
				}
				together = max(together, long)
				b.step(b.now + time.Second)
			}
			require.Greater(t, together, 1, "%v, ahead %v: the trick did not work, so nothing is shown", p, ahead)
			a, _ := b.s.Account(b.now, groups[0], 0)
			require.InDelta(t, 0.5, a.Busy.Seconds()/b.now.Seconds(), 0.01, "%v, ahead %v", p, ahead)
		}
	}
}

// TestMostAhead: alone, an engine gets short requests while it works on others, and no long ones.
func TestMostAhead(t *testing.T) {
	for _, at := range []struct {
		ahead, length time.Duration
		most          int
	}{{ms, 200 * us, 4}, {0, 200 * us, 1}, {ms, 2 * ms, 1}} {
		c := sched.Default()
		c.Ahead = at.ahead
		b, _, _ := twoGroups(t, c, at.length, at.length)
		most := 0
		for b.submit(b.channels[0], 50); b.now < 50*ms; b.step(50 * ms) {
			b.drain()
			most = max(most, len(b.card[0]))
		}
		require.Equal(t, at.most, most, "%+v", at)
	}
}
