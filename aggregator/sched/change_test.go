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
				if l.Sort.Queue == 1 {
					l.Sort.Key += up
				}
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

// TestCommonCreditIsDropped: if all have credit, they would take equal turns until it is
// spent, independent of their weights. A change of weights leaves them only their credit
// above the others'.
func TestCommonCreditIsDropped(t *testing.T) {
	s, err := sched.New(sched.Default(), 1, 0)
	require.NoError(t, err)
	var guests []sched.ID
	now := time.Second
	for range 3 {
		g, err := s.AddNode(0, sched.Card, sched.NodeConfig{})
		require.NoError(t, err)
		ch, err := s.AddChannel(0, g, 0)
		require.NoError(t, err)
		guests = append(guests, g)
		s.Submit(now, ch, 1<<16)
	}
	st := s.Freeze()
	level := int64(0)
	for n := range st.Nodes {
		if st.Nodes[n].Kind == sched.Inner && n > 0 {
			level += 1 << 20
			st.Nodes[n].Lanes[0].Tag = level
		}
	}
	st.Nodes[0].Lanes[0].Level = 100 * level
	s = sched.Restore(st)
	require.NoError(t, s.Change(now, guests[0], sched.NodeConfig{Weight: 100}))
	require.Equal(t, level, s.Level(0), "that of the node with the least credit")
	require.NoError(t, s.Twin())
}

// TestDebtIsATime: a guest whose weight changes has the same debt in time as before.
func TestDebtIsATime(t *testing.T) {
	s, err := sched.New(sched.Default(), 1, 0)
	require.NoError(t, err)
	now := time.Second
	var first sched.ID
	for range 2 {
		g, err := s.AddNode(0, sched.Card, sched.NodeConfig{Weight: 100})
		require.NoError(t, err)
		if first == 0 {
			first = g
		}
		ch, err := s.AddChannel(0, g, 0)
		require.NoError(t, err)
		s.Submit(now, ch, 1<<16)
	}
	st := s.Freeze()
	level := st.Nodes[0].Lanes[0].Level
	st.Nodes[1].Lanes[0].Tag = level + 1<<20
	s = sched.Restore(st)
	for _, weight := range []int{400, 50, 100} {
		require.NoError(t, s.Change(now, first, sched.NodeConfig{Weight: weight}))
		st = s.Freeze()
		require.Equal(t, level, st.Nodes[0].Lanes[0].Level)
		require.Equal(t, level+1<<20*100/int64(weight), st.Nodes[1].Lanes[0].Tag, "weight %d", weight)
	}
}

// TestNextGroupInheritsDebt: the groups of a guest leave their debts and their overuse to its next
// group, and only to that one. A group that ends on the card also leaves what it uses until then.
func TestNextGroupInheritsDebt(t *testing.T) {
	b := newFixture(t, sched.Default())
	guest := b.node(t, sched.Card, sched.NodeConfig{})
	lane := func(id sched.ID) sched.Lane { return b.s.Freeze().Nodes[uint32(id)].Lanes[0] }
	level := func() int64 { return lane(guest).Level }
	debt := func(id sched.ID) int64 { return lane(id).Tag - level() }
	groups := []sched.ID{b.node(t, guest, sched.NodeConfig{}), b.node(t, guest, sched.NodeConfig{})}
	st := b.s.Freeze()
	for i, id := range groups {
		l := &st.Nodes[uint32(id)].Lanes[0]
		l.Tag, l.Overuse = level()+int64(1000<<i), time.Duration(i+1)
	}
	b.s = sched.Restore(st)
	for _, id := range groups {
		require.True(t, b.s.Remove(b.now, id))
	}
	heir, other := b.node(t, guest, sched.NodeConfig{}), b.node(t, guest, sched.NodeConfig{})
	require.Equal(t, int64(3000), debt(heir))
	require.Equal(t, time.Duration(3), lane(heir).Overuse)
	require.Zero(t, debt(other))
	require.Zero(t, lane(other).Overuse)

	b.lengths = func(sched.ID, int) time.Duration { return 100 * ms }
	b.submit(b.channel(t, heir, 0), 1)
	require.Len(t, b.drain(), 1)
	require.True(t, b.s.Remove(b.now, heir))
	require.GreaterOrEqual(t, debt(b.node(t, guest, sched.NodeConfig{})), int64(3000))
	b.run(time.Second)
	require.Positive(t, debt(b.node(t, guest, sched.NodeConfig{})))
}
