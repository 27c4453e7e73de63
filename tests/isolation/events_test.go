package isolation

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// street makes n equal GPUs on a card.
func street(t *testing.T, cfg testserver.SharedConfig, n int) *rig.Rig {
	t.Helper()
	cfg.Card = soft.Config{VRAM: max(256<<20, uint64(n)*80<<20>>26<<26)}
	s := rig.New(t, cfg)
	for i := range n {
		s.Add(aggregator.GuestConfig{Name: fmt.Sprintf("guest%d", i), Map: aperture.MapAll})
	}
	return s
}

// park attaches a guest whose channels wait at a semaphore that nobody releases.
func park(t *testing.T, s *rig.Rig, e *testserver.Endpoint, channels int) {
	t.Helper()
	const va = 0x1000_0000
	g := s.Attach(e, guest.Config{RAM: 1 << 20, Map: true})
	g.BufferRAM(va, 4096)
	for id := range channels {
		ch := g.Channel(1+id, guest.ChannelConfig{})
		require.NoError(t, ch.Finish())
		require.NoError(t, ch.Submit(new(guest.Push).Semaphore(va, 1, guest.SemAcquire).Words...))
	}
}

// fences has a guest copy and wait for a fence, n times. It returns the events that the guest got.
func fences(v *rig.Copier, e *testserver.Endpoint, n int) (events uint64, err error) {
	before := e.Guest.Stats().EngineEvents.Load()
	for range n {
		ch := v.Ch.(*rig.FermiChannel).Channel
		if err := errors.Join(ch.Copy(guest.M2MF, v.Via, v.Src, rig.CopySize), ch.FinishByEvent()); err != nil {
			return 0, err
		}
	}
	return e.Guest.Stats().EngineEvents.Load() - before, nil
}

// TestEventsReachTheirOwnerAlone: a guest whose channels wait at a semaphore gets no event of a
// neighbour that works, and the neighbour none beyond its own. Where the card does not tell whose an
// event is, a waiting channel gets one when it begins to wait, and few more.
func TestEventsReachTheirOwnerAlone(t *testing.T) {
	const n = 40
	for _, c := range []struct {
		name   string
		cfg    testserver.SharedConfig
		others uint64 // events of others
	}{
		{"software", testserver.SharedConfig{}, 0},
		{"plain registers", testserver.OtherCards["plain registers"], n / 4},
	} {
		for _, channels := range scale.Of([]int{8}, []int{1, 8}) {
			t.Run(fmt.Sprintf("%s, %d waiting", c.name, channels), func(t *testing.T) {
				if c.others > 0 {
					scale.ReleaseOnly(t) // package driver tests it in the gate
				}
				s := street(t, c.cfg, 2)
				v, err := copier(rig.Fermi, s.GPUs[1], 1)
				require.NoError(t, err)
				defer v.Close()
				park(t, s, s.GPUs[0], channels)
				neighbour := &s.GPUs[0].Guest.Stats().EngineEvents
				before := neighbour.Load()
				events, err := fences(v, s.GPUs[1], n)
				require.NoError(t, err)
				require.LessOrEqual(t, neighbour.Load()-before, c.others)
				require.LessOrEqual(t, events, n+c.others)
			})
		}
	}
}
