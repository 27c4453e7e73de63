package sched_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Random lives of a scheduler, and what holds at every moment of them.

// drawConfig draws a configuration.
func drawConfig(t *rapid.T) sched.Config {
	c := sched.Default()
	c.Policy = rapid.SampledFrom(all).Draw(t, "policy")
	c.Depth = rapid.IntRange(1, 4).Draw(t, "depth")
	c.Ahead = rapid.SampledFrom([]time.Duration{0, ms, 50 * ms}).Draw(t, "ahead")
	c.Credit.Period = rapid.SampledFrom([]time.Duration{ms, 5 * ms, 30 * ms}).Draw(t, "period")
	c.DFQ.Model = rapid.Bool().Draw(t, "model")
	return c
}

// script is a random sequence of all calls of a scheduler, in any order.
func script(t *rapid.T, b *fixture, each func()) {
	var inner []sched.ID
	groups := map[sched.ID]bool{}
	removed, parent := map[sched.ID]bool{}, map[sched.ID]sched.ID{}
	gone := func(id sched.ID) bool { return removed[id] || removed[parent[id]] || removed[parent[parent[id]]] }
	alive := func(list []sched.ID) (out []sched.ID) {
		for _, id := range list {
			if _, ok := b.s.Account(b.now, id, 0); ok && !gone(id) {
				out = append(out, id)
			}
		}
		return out
	}
	for range rapid.IntRange(1, 3).Draw(t, "guests") {
		g := b.node(t, sched.Card, sched.NodeConfig{Weight: rapid.IntRange(1, 300).Draw(t, "weight")})
		p := b.node(t, g, sched.NodeConfig{})
		inner, groups[p], parent[p] = append(inner, g, p), true, g
		parent[b.channel(t, p, rapid.IntRange(0, 1).Draw(t, "engine"))] = p
	}
	for range rapid.IntRange(5, 60).Draw(t, "steps") {
		channels := alive(b.channels)
		switch rapid.IntRange(0, 10).Draw(t, "what") {
		case 0, 1, 2, 3:
			if len(channels) > 0 {
				b.submit(rapid.SampledFrom(channels).Draw(t, "channel"), rapid.IntRange(1, 40).Draw(t, "entries"))
			}
		case 4, 5:
			b.run(b.now + time.Duration(rapid.IntRange(1, 40).Draw(t, "ms"))*ms)
		case 6:
			require.NoError(t, b.s.Configure(b.now, drawConfig(t)))
		case 7:
			nodes := alive(inner)
			id := rapid.SampledFrom(append(nodes, nodes...)).Draw(t, "node")
			c := sched.NodeConfig{
				Weight: rapid.IntRange(1, 1000).Draw(t, "weight"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
				Cap: rapid.SampledFrom([]int{0, 0, 100, 500}).Draw(t, "cap"),
			}
			require.NoError(t, b.s.Change(b.now, id, c))
		case 8:
			var open []sched.ID
			for _, id := range alive(inner) {
				if groups[id] {
					open = append(open, id)
				}
			}
			if len(open) > 0 {
				p := rapid.SampledFrom(open).Draw(t, "group")
				parent[b.channel(t, p, rapid.IntRange(0, 1).Draw(t, "engine"))] = p
			}
		case 9:
			if nodes := alive(inner); len(nodes) > 2 && len(channels) > 1 {
				id := rapid.SampledFrom(append(nodes, channels...)).Draw(t, "removed")
				removed[id] = true
				require.True(t, b.s.Remove(b.now, id))
			}
			for _, ch := range b.channels {
				if gone(ch) {
					b.resume(ch)
				}
			}
		case 10:
			if len(channels) > 0 {
				b.s.Stall(b.now, rapid.SampledFrom(channels).Draw(t, "stalls"), rapid.Bool().Draw(t, "on"))
			}
		}
		each()
	}
	// In the end no node is barred, and all work is done.
	for _, id := range alive(inner) {
		require.NoError(t, b.s.Change(b.now, id, sched.NodeConfig{}))
	}
	for _, id := range alive(b.channels) {
		b.s.Stall(b.now, id, false)
	}
}

// TestLiveChanges: for any changes under load, no entry is lost or done twice, the accounts
// are right at any instant, and all work ends.
func TestLiveChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newFixture(t, drawConfig(t))
		b.mixedEngines = rapid.Bool().Draw(t, "mixedEngines")
		script(t, b, func() {
			require.NoError(t, b.s.Twin())
			b.drain()
			require.NoError(t, b.s.Twin())
			b.check(t)
		})
		b.run(b.now + 60*time.Second)
		b.check(t)
		for _, n := range b.s.Ledger(b.now)[:1] {
			require.Zero(t, n.Waiting[0]+n.Waiting[1]+n.Inflight[0]+n.Inflight[1], "work is left over")
		}
		require.Zero(t, b.s.Counts.BadEvents)
	})
}

// TestLevelNeverFalls: the tag from which a new node starts only rises, so a node gains
// nothing by leaving and returning.
func TestLevelNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sched.Default()
		c.Policy = rapid.SampledFrom([]sched.Policy{sched.Credit, sched.Band, sched.DFQ}).Draw(t, "policy")
		b := newFixture(t, c)
		var channels []sched.ID
		for range rapid.IntRange(1, 6).Draw(t, "guests") {
			channels = append(channels, b.channel(t, b.node(t, sched.Card, sched.NodeConfig{}), 0))
		}
		b.lengths = func(ch sched.ID, i int) time.Duration { return time.Duration(uint64(ch)%5+1) * 700 * us }
		last := b.s.Level(0)
		for range rapid.IntRange(10, 100).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "submit") {
				b.submit(rapid.SampledFrom(channels).Draw(t, "channel"), rapid.IntRange(1, 60).Draw(t, "entries"))
			}
			b.run(b.now + time.Duration(rapid.IntRange(0, 30).Draw(t, "ms"))*ms)
			require.GreaterOrEqual(t, b.s.Level(0), last)
			last = b.s.Level(0)
			// No work waits that could run.
			l := b.s.Ledger(b.now)[0]
			require.False(t, l.Waiting[0] > 0 && l.Inflight[0] == 0 && b.s.Timer() > b.now+ms, "%d wait, nothing is on the card", l.Waiting[0])
		}
	})
}

// TestFreeze: a scheduler that was frozen, written, read and restored makes the same
// decisions as the original, and reaches the same state.
func TestFreeze(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newFixture(t, drawConfig(t))
		b.mixedEngines = rapid.Bool().Draw(t, "mixedEngines")
		script(t, b, func() {
			if rapid.IntRange(0, 3).Draw(t, "freeze") == 0 {
				b.freeze(t, 10*ms)
			}
		})
	})
}

// freeze compares a restored scheduler with the frozen one for a while, each with its own
// card.
func (b *fixture) freeze(t require.TestingT, d time.Duration) {
	b.drain()
	text, err := json.Marshal(b.s.Freeze())
	require.NoError(t, err)
	var st sched.State
	require.NoError(t, json.Unmarshal(text, &st))
	twin := b.twin()
	twin.s = sched.Restore(&st)
	require.NoError(t, twin.s.Twin())
	for _, ch := range b.channels {
		b.submit(ch, 2)
		twin.submit(ch, 2)
	}
	until := b.now + d
	for {
		require.Equal(t, b.drain(), twin.drain())
		require.Equal(t, b.s.Timer(), twin.s.Timer())
		more := b.now < until && b.step(until)
		require.Equal(t, more, twin.now < until && twin.step(until))
		if !more {
			break
		}
	}
	require.Equal(t, b.s.Freeze(), twin.s.Freeze())
}

// twin copies a bed, but for its scheduler.
func (b *fixture) twin() *fixture {
	c := *b
	for e := range c.card {
		c.card[e] = slices.Clone(b.card[e])
	}
	c.channels = slices.Clone(b.channels)
	c.submitted, c.forwarded, c.done, c.away, c.leaving = maps.Clone(b.submitted), maps.Clone(b.forwarded), maps.Clone(b.done), maps.Clone(b.away), maps.Clone(b.leaving)
	return &c
}
