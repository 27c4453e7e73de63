package sched_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/model"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// TestSharesFollow: a change of weight or cap changes shares within a quarter of a second,
// except for older debts.
func TestSharesFollow(t *testing.T) {
	for _, p := range []sched.Policy{sched.Credit, sched.Band} {
		c := sched.Default()
		c.Policy = p
		var m model.Mix
		for i := range 8 {
			m.Guests = append(m.Guests, model.Node{
				Name: string(rune('a' + i)),
				Load: &throttle.Load{Busy: time.Duration(i+1) * 400 * us, Ahead: 4, Start: time.Duration(i) * 100 * ms},
			})
		}
		r, err := model.NewRig(c, m, 1)
		require.NoError(t, err)
		require.NoError(t, r.Run(time.Second))
		stretch := func(d time.Duration) float64 {
			before := r.Clients[3].Stats.Busy[model.Graphics]
			require.NoError(t, r.Run(r.Now+d))
			return 100 * float64(r.Clients[3].Stats.Busy[model.Graphics]-before) / float64(d)
		}
		for _, s := range []struct {
			weight, cap int
			want        float64
		}{{700, 0, 50}, {100, 0, 12.5}, {700, 250, 25}, {100, 0, 12.5}, {10, 0, 100. / 71}} {
			require.NoError(t, r.Sched.Change(r.Now, r.Clients[3].Node, sched.NodeConfig{Weight: s.weight, Cap: s.cap}))
			first, second := stretch(250*ms), stretch(250*ms)
			t.Logf("%v, weight %d, cap %d: want %.1f %%, %.1f and %.1f", p, s.weight, s.cap, s.want, first, second)
			require.InDelta(t, s.want, first, 8)
			require.InDelta(t, s.want, second, 2.5)
		}
	}
}

// TestLevelIsRebased: tags are rebased long before they would overflow, at any event: a
// stall, a doorbell, a completion. No turn changes.
func TestLevelIsRebased(t *testing.T) {
	for _, p := range all {
		b := newFixture(t, sched.Default())
		require.NoError(t, b.s.Configure(0, func() sched.Config { c := sched.Default(); c.Policy = p; return c }()))
		b.lengths = func(sched.ID, int) time.Duration { return 150 * us } // so that some go ahead
		for i := range 4 {
			g := b.node(t, sched.Card, sched.NodeConfig{Weight: 100 + i})
			b.channel(t, b.node(t, g, sched.NodeConfig{}), 0)
			b.channel(t, b.node(t, g, sched.NodeConfig{}), i%2)
		}
		load := func(b *fixture) {
			for _, ch := range b.channels {
				b.submit(ch, 100)
			}
		}
		load(b)
		b.run(50 * ms)
		st := b.s.Freeze()
		const up = 1 << 60
		for n := range st.Nodes { // all much later, but alike
			for e := range st.Nodes[n].Lanes {
				l := &st.Nodes[n].Lanes[e]
				l.Level += up
				l.Tag += up
			}
		}
		late := b.twin()
		late.s = sched.Restore(st)
		for i := range 40 {
			for _, k := range []*fixture{b, late} {
				k.s.Stall(k.now, k.channels[i%8], i%3 != 0)
				require.NoError(t, k.s.Twin(), "%v", p)
				k.run(k.now + 7*ms)
				require.NoError(t, k.s.Twin(), "%v", p)
			}
			require.Equal(t, b.done, late.done, "%v, step %d", p, i)
		}
		if p != sched.DFQ {
			require.Less(t, late.s.Level(0), int64(up), "%v", p)
		}
	}
}

// TestWeightsAndTags: a guest whose weight changes has the same debt in time as before. If all have
// credit, they would take equal turns until it is spent, independent of their weights: a change
// leaves them only their credit above the others'.
func TestWeightsAndTags(t *testing.T) {
	b := newFixture(t, sched.Default())
	var guests []sched.ID
	for range 3 {
		guests = append(guests, b.node(t, sched.Card, sched.NodeConfig{}))
		b.submit(b.channel(t, guests[len(guests)-1], 0), 1<<16)
	}
	tag := func(st *sched.State, guest int) *int64 { return &st.Nodes[uint32(guests[guest])].Lanes[0].Tag }
	st := b.s.Freeze()
	level := st.Nodes[0].Lanes[0].Level
	*tag(st, 0) = level + 1<<20
	b.s = sched.Restore(st)
	for _, weight := range []int{400, 50, 100} {
		require.NoError(t, b.s.Change(time.Second, guests[0], sched.NodeConfig{Weight: weight}))
		st = b.s.Freeze()
		require.Equal(t, level, st.Nodes[0].Lanes[0].Level)
		require.Equal(t, level+1<<20*100/int64(weight), *tag(st, 0), "weight %d", weight)
	}
	for g := range guests {
		*tag(st, g) = int64(g+1) << 20
	}
	st.Nodes[0].Lanes[0].Level = 300 << 20
	b.s = sched.Restore(st)
	require.NoError(t, b.s.Change(time.Second, guests[0], sched.NodeConfig{Weight: 100}))
	require.EqualValues(t, 3<<20, b.s.Level(0), "that of the node with the least credit")
	require.NoError(t, b.s.Twin())
}
