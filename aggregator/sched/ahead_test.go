package sched_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

func pairOf(t *testing.T, p sched.Policy, ahead time.Duration, loads ...throttle.Load) *model.Rig {
	c := sched.Default()
	c.Policy, c.Ahead = p, ahead
	var m model.Mix
	for i := range loads {
		m.Guests = append(m.Guests, model.Node{Name: string(rune('a' + i)), Load: &loads[i]})
	}
	r, err := model.NewRig(c, m, 1)
	require.NoError(t, err)
	most := 3 * time.Second // in which the longest requests add half a share to a point
	for _, l := range loads {
		if l.Busy > 50*ms {
			most = 6 * time.Second
		}
	}
	require.NoError(t, r.Run(most))
	return r
}

func shareOf(r *model.Rig, i int) float64 {
	return 100 * float64(r.Clients[i].Stats.Busy[model.Graphics]) / float64(r.Card.Busy(model.Graphics))
}

// TestAhead: early forwarding changes no share, for any number of unfinished requests of a
// guest and any length of the others'.
func TestAhead(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band} {
		for _, short := range []time.Duration{50 * us, 900 * us} {
			for _, long := range []time.Duration{50 * us, 3 * ms, 126 * ms} {
				for _, unfinished := range []int{1, 8} {
					loads := []throttle.Load{{Busy: short, Ahead: unfinished}, {Busy: long, Ahead: 8}}
					with, want := pairOf(t, p, ms, loads...), 50.0
					if unfinished == 1 { // not half: the same as without
						want = shareOf(pairOf(t, p, 0, loads...), 0)
					}
					require.InDelta(t, want, shareOf(with, 0), 1.5, "%v: %v with %d unfinished against %v", p, short, unfinished, long)
					require.LessOrEqual(t, with.MostOnCard, 4)
				}
			}
		}
	}
	// Alone, there is always one more on the card while one is at work.
	one := pairOf(t, sched.Credit, ms, throttle.Load{Busy: 200 * us, Ahead: 8})
	require.Equal(t, 4, one.MostOnCard)
	require.Equal(t, 1, pairOf(t, sched.Credit, 0, throttle.Load{Busy: 200 * us, Ahead: 8}).MostOnCard)
	require.Equal(t, 1, pairOf(t, sched.Credit, ms, throttle.Load{Busy: 2 * ms, Ahead: 8}).MostOnCard, "it is not short")
	// Unpredictable lengths.
	drawn := pairOf(t, sched.Credit, ms, throttle.Load{Busy: 50 * us, BusyMost: 1500 * us, Ahead: 8}, throttle.Load{Busy: 4 * ms, Ahead: 4})
	require.InDelta(t, 50, shareOf(drawn, 0), 1)
}

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
// forwarded as if they were short, gains nothing (test 6 of the list in
// docs/scheduling.md).
func TestTrainedLengths(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band} {
		for _, ahead := range []time.Duration{200 * us, ms, 50 * ms} {
			trainedLengths(t, p, ahead)
		}
	}
}

func trainedLengths(t *testing.T, p sched.Policy, ahead time.Duration) {
	c := sched.Default()
	c.Policy, c.Ahead = p, ahead
	s, err := sched.New(c, 1, 0)
	require.NoError(t, err)
	var ids []sched.ID
	for range 2 {
		g, err := s.AddNode(0, sched.Card, sched.NodeConfig{})
		require.NoError(t, err)
		ch, err := s.AddChannel(0, g, 0)
		require.NoError(t, err)
		ids = append(ids, ch)
		s.Submit(0, ch, 8)
	}
	var card []sched.ID
	var used [2]time.Duration
	now, sent, together := time.Duration(0), 0, 0
	for now < 60*time.Second {
		for f, ok := s.Next(now); ok; f, ok = s.Next(now) {
			card = append(card, f.Channel)
		}
		if len(card) == 0 {
			now = s.Timer()
			continue
		}
		long := 0
		next, busy := 1, ms
		if card[0] == ids[0] {
			next, busy = 0, 20*us
			if sent++; sent%68 >= 64 {
				busy = 60 * ms
				for _, id := range card {
					if id == ids[0] {
						long++
					}
				}
			}
		}
		together = max(together, long)
		now += busy
		used[next] += busy
		s.Complete(now, sched.Done{Channel: card[0], Entries: 1, Busy: busy})
		s.Submit(now, card[0], 1)
		card = card[1:]
	}
	t.Logf("%v, ahead %v: %.2f %%, %d long requests on the card", p, ahead, 100*float64(used[0])/float64(used[0]+used[1]), together)
	require.Greater(t, together, 1, "%v, ahead %v: the trick did not work, so nothing is shown", p, ahead)
	require.InDelta(t, 0.5, float64(used[0])/float64(used[0]+used[1]), 0.01, "%v, ahead %v", p, ahead)
}
