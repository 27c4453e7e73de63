package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// costTurns is over how many requests costs are averaged.
const costTurns = 20_000

// crowd is a scheduler with many groups that always have work.
func crowd(t require.TestingT, p sched.Policy, groups int) *cycle {
	c := sched.Default()
	c.Policy, c.Limits.Channels = p, 1<<16
	s, err := sched.New(c, 1, 0)
	require.NoError(t, err)
	k := &cycle{s: s}
	var guest sched.ID
	for i := range groups {
		if i%32 == 0 {
			guest, err = s.AddNode(0, sched.Card, sched.NodeConfig{})
			require.NoError(t, err)
		}
		g, err := s.AddNode(0, guest, sched.NodeConfig{})
		require.NoError(t, err)
		ch, err := s.AddChannel(0, g, 0)
		require.NoError(t, err)
		s.Submit(0, ch, 2)
	}
	return k
}

// cycle is one request after the other: forwarded, done, submitted again.
type cycle struct {
	s    *sched.Scheduler
	now  time.Duration
	card []sched.Forward
	head int
	n    int
}

func (k *cycle) turn() {
	for {
		f, ok := k.s.Next(k.now)
		if !ok {
			break
		}
		for range f.Entries {
			k.card = append(k.card, sched.Forward{Channel: f.Channel, Engine: f.Engine, Entries: 1})
		}
	}
	if k.head == len(k.card) { // the policy waits
		k.now = k.s.Timer()
		return
	}
	f := k.card[k.head]
	if k.head++; 2*k.head > len(k.card) {
		k.card = k.card[:copy(k.card, k.card[k.head:])]
		k.head = 0
	}
	k.n++
	busy := time.Duration(k.n%7+1) * 100 * us
	k.now += busy
	k.s.Complete(k.now, sched.Done{Channel: f.Channel, Engine: f.Engine, Entries: 1, Busy: busy})
	k.s.Submit(k.now, f.Channel, 1)
}

// TestNoAllocations: a request from doorbell to completion allocates nothing.
func TestNoAllocations(t *testing.T) {
	for _, p := range all {
		k := crowd(t, p, 64)
		for range costTurns {
			k.turn()
		}
		require.Zero(t, testing.AllocsPerRun(5000, k.turn), "%v", p)
	}
}

// BenchmarkRequest is one request from doorbell to completion.
func BenchmarkRequest(b *testing.B) {
	for _, p := range all {
		for _, n := range []int{1, 32, 1024} {
			b.Run(fmt.Sprintf("%v/groups=%d", p, n), func(b *testing.B) {
				k := crowd(b, p, n)
				for range 4 * n {
					k.turn()
				}
				b.ReportAllocs()
				for b.Loop() {
					k.turn()
				}
			})
		}
	}
}
