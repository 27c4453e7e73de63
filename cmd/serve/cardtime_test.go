package serve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// sharedOf serves a GPU for each name, with its part of the card's time.
func sharedOf(t *testing.T, o aggregator.Options, parts map[string]sched.NodeConfig) *sharedCard {
	s := share(t, newCard(t), Native, vfiouser.Options{}, o)
	for name, part := range parts {
		s.add(aggregator.GuestConfig{Name: name, VRAM: testedVRAM, Share: part})
	}
	return s
}

// TestCardTime: a GPU's part of the card's time reaches the scheduler when the GPU is
// added and when the part is changed.
func TestCardTime(t *testing.T) {
	config := sched.Default()
	s := sharedOf(t, aggregator.Options{Scheduler: &config}, map[string]sched.NodeConfig{
		"a": {Weight: 100}, "b": {Weight: 300, Cap: 500, Priority: 1},
	})
	weights := func() map[string]int {
		out := make(map[string]int)
		for name, n := range s.CardTimes() {
			require.Equal(t, "guest", n.Kind)
			require.NotEmpty(t, n.Engines)
			out[name] = n.Weight
		}
		return out
	}
	require.Equal(t, map[string]int{"a": 100, "b": 300}, weights())

	a := s.Find("a")
	require.NoError(t, a.SetCardTime(sched.NodeConfig{Weight: 700}))
	require.Equal(t, map[string]int{"a": 700, "b": 300}, weights())
	wrong := new(sched.Error)
	require.ErrorAs(t, a.SetCardTime(sched.NodeConfig{Weight: sched.MaxWeight + 1}), &wrong)
	require.Equal(t, map[string]int{"a": 700, "b": 300}, weights())

	c, n := s.Schedule()
	require.Equal(t, config, *c)
	for name, count := range n {
		require.Zero(t, count, name)
	}
	r, err := s.Remove("a", false)
	require.NoError(t, err)
	require.Equal(t, 700, r.CardTime.Weight)
	require.Equal(t, map[string]int{"b": 300}, weights())
}

// TestNoScheduler: without a scheduler there are no accounts, and nothing to change.
func TestNoScheduler(t *testing.T) {
	s := sharedOf(t, aggregator.Options{}, map[string]sched.NodeConfig{"a": {}})
	require.Nil(t, s.CardTimes())
	c, n := s.Schedule()
	require.Nil(t, c)
	require.Nil(t, n)
	require.ErrorIs(t, s.Find("a").SetCardTime(sched.NodeConfig{Weight: 3}), gate.ErrNoScheduler)
	r, err := s.Remove("a", false)
	require.NoError(t, err)
	require.Nil(t, r.CardTime)
}
