package program_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/guest/program"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// polled is a guest that maps what it is offered, and how many of its doorbells were
// found by looking for them.
type polled struct {
	*guest.Guest
	found func() uint64
}

// polledSetups are the ways to one. The pace is a card's.
var polledSetups = map[string]func(t *testing.T, m homes.Map, p doorbell.Pace) polled{
	"pass-through": func(t *testing.T, m homes.Map, p doorbell.Pace) polled {
		s, err := stand.New(stand.Config{Card: soft.Config{VRAM: 64 << 20, Map: m, Doorbell: doorbell.Poll, Pace: p}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return polled{attachTo(t, s.Socket()), s.Card.Stats().Poller.Rings.Load}
	},
	"virtual": func(t *testing.T, m homes.Map, _ doorbell.Pace) polled {
		s, err := stand.NewShared(soft.Config{VRAM: 256 << 20}, 0, 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.AddGPU(aggregator.GuestConfig{Name: "a", VRAM: 64 << 20, Map: m, Doorbell: doorbell.Poll}))
		gpu := s.GPUs[0]
		return polled{attachTo(t, gpu.Socket), gpu.Guest.Stats().PolledDoorbells.Load}
	},
}

func attachTo(t *testing.T, socket string) *guest.Guest {
	t.Helper()
	g, err := guest.Attach(context.Background(), socket, guest.Config{Map: true, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// Any program leaves the memory, the fences and the faults that the model says, also
// if nobody traps its doorbells: as one whose doorbells are trapped.
func TestProgramsMatchModelPolled(t *testing.T) {
	for name, make := range polledSetups {
		for _, m := range []homes.Map{homes.MapAll, homes.MapNone} {
			t.Run(name+" "+m.String(), func(t *testing.T) {
				g := make(t, m, doorbell.Pace{})
				limits, n := program.Limits{}, 25
				if m == homes.MapNone {
					limits, n = program.Limits{NoLarge: true, Buffers: 3}, 5 // every access but doorbells is a round trip
				}
				gen := program.Gen(limits)
				for i := range n {
					p := gen.Example(i)
					require.NoError(t, g.Reset())
					require.NoError(t, program.Run(g.Guest, &p), "%v", p)
				}
				require.NotZero(t, g.found())
			})
		}
	}
}

// TestDoorbellsAreNotTrapped: submissions and the waits for their fences make no access
// that the server hears of. With trapped doorbells the same ones do.
func TestDoorbellsAreNotTrapped(t *testing.T) {
	const n, id = 100, 3
	for _, mode := range []doorbell.Mode{doorbell.Trap, doorbell.Poll} {
		t.Run(mode.String(), func(t *testing.T) {
			s, err := stand.New(stand.Config{Card: soft.Config{VRAM: 64 << 20, Map: homes.MapAll, Doorbell: mode}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			g := attachTo(t, s.Socket())
			space, err := g.NewSpace()
			require.NoError(t, err)
			ch, err := g.NewChannelWith(id, space, guest.ChannelConfig{RingRAM: true, PushRAM: true})
			require.NoError(t, err)
			require.NoError(t, ch.Finish())
			// An engine that has just ended sees the next entry itself: that is no ring.
			idle := func() {
				for begin := time.Now(); !s.Card.Use(id).Idle; runtime.Gosched() {
					require.Less(t, time.Since(begin), time.Minute)
				}
			}
			before, rings := messages(s), s.Card.Stats().Poller.Rings.Load()
			for range n {
				idle()
				f, err := ch.Fence()
				require.NoError(t, err)
				for begin := time.Now(); ; {
					done, err := f.Done()
					require.NoError(t, err)
					if done {
						break
					}
					require.Less(t, time.Since(begin), time.Minute)
				}
			}
			traps := messages(s) - before
			found := func() uint64 { return s.Card.Stats().Poller.Rings.Load() - rings }
			if mode == doorbell.Poll {
				require.Zero(t, traps)
				// A ring is counted when the look is over, which may be after its fence.
				require.Eventually(t, func() bool { return found() >= n }, time.Minute, time.Millisecond)
				require.LessOrEqual(t, found(), uint64(n+1), "each submission was waited for")
			} else {
				require.GreaterOrEqual(t, traps, uint64(n))
				require.Zero(t, found())
			}
		})
	}
}

// messages counts all that the client has asked for.
func messages(s *stand.Stand) (n uint64) {
	for _, c := range s.Server.Stats().Commands {
		n += c.Messages
	}
	return n
}
