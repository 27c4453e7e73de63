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
	require.NoError(t, r.Run(4*time.Second))
	return r
}

func shareOf(r *model.Rig, i int) float64 {
	return 100 * float64(r.Clients[i].Stats.Busy[model.Graphics]) / float64(r.Card.Busy(model.Graphics))
}

// TestAhead: what is forwarded early moves no share, however few requests a guest
// keeps unfinished and whatever the others' length.
func TestAhead(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band} {
		for _, short := range []time.Duration{50 * us, 900 * us} {
			for _, long := range []time.Duration{50 * us, ms, 3 * ms, 126 * ms} {
				for _, unfinished := range []int{1, 2, 8} {
					loads := []throttle.Load{{Busy: short, Ahead: unfinished}, {Busy: long, Ahead: 8}}
					without := pairOf(t, p, 0, loads...)
					with := pairOf(t, p, ms, loads...)
					require.InDelta(t, shareOf(without, 0), shareOf(with, 0), 1.5, "%v: %v with %d unfinished against %v", p, short, unfinished, long)
					if unfinished > 1 {
						require.InDelta(t, 50, shareOf(with, 0), 1.5, "%v: %v with %d unfinished against %v", p, short, unfinished, long)
					}
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
	// Lengths that nobody can foretell.
	drawn := pairOf(t, sched.Credit, ms, throttle.Load{Busy: 50 * us, BusyMost: 1500 * us, Ahead: 8}, throttle.Load{Busy: 4 * ms, Ahead: 4})
	require.InDelta(t, 50, shareOf(drawn, 0), 1)
}

// TestTrainedLengths: who makes itself known for short requests, and then sends long
// ones that are forwarded as if they were short, gains nothing by it.
func TestTrainedLengths(t *testing.T) {
	c := sched.Default()
	c.Ahead = ms
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
		who, busy := 1, ms
		if card[0] == ids[0] {
			who, busy = 0, 20*us
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
		used[who] += busy
		s.Complete(now, sched.Done{Channel: card[0], Entries: 1, Busy: busy})
		s.Submit(now, card[0], 1)
		card = card[1:]
	}
	require.Greater(t, together, 1, "the trick did not work, so nothing is shown")
	require.InDelta(t, 0.5, float64(used[0])/float64(used[0]+used[1]), 0.01)
}
