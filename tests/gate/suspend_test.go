package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
)

// sleeper is a guest whose driver has a channel for itself and one for a process.
type sleeper struct {
	t               *testing.T
	h               *hall
	g               *guest.Guest
	kernel, process *guest.Channel
}

// load has the driver make its own channel first, as at its probe and at resume, at the
// saved location.
func (s *sleeper) load() {
	s.t.Helper()
	for i, to := range []**guest.Channel{&s.kernel, &s.process} {
		space, err := s.g.NewSpace()
		require.NoError(s.t, err)
		*to, err = s.g.NewChannel(i+1, space)
		require.NoError(s.t, err)
	}
	s.work()
}

func (s *sleeper) work() {
	s.t.Helper()
	for range 10 {
		for _, ch := range []*guest.Channel{s.kernel, s.process} {
			require.NoError(s.t, ch.Finish())
		}
	}
}

// books returns the guest's groups with their weights, the completed work of present
// groups, and that of removed ones.
func (s *sleeper) books() (groups map[string]int, present, removed int64) {
	groups = map[string]int{}
	mine := false
	for _, e := range s.h.Agg.Ledger() {
		switch e.Depth {
		case 1:
			if mine = e.Name == "sleeper"; mine {
				for _, a := range e.Past {
					removed += a.Done
				}
			}
		case 2:
			if mine {
				groups[e.Name] = e.Weight
				for _, a := range e.Accounts {
					present += a.Done
				}
			}
		}
	}
	return groups, present, removed
}

// TestSuspend: a driver takes all channels off the card, its own last, and brings them back,
// its own first. It has the same groups afterwards, with the same names, with and without a
// reset of the card in between. The ledger keeps their former use, and the other guest works
// all the time.
func TestSuspend(t *testing.T) {
	eachMode(t, func(t *testing.T, h *hall) {
		other := h.join("other")
		e := h.Add(aggregator.GuestConfig{Name: "sleeper", Map: h.maps})
		g, err := guest.Attach(t.Context(), e.Socket, guest.Config{RAM: 1 << 20, Map: h.maps != 0})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		s := &sleeper{t: t, h: h, g: g}
		s.load()
		want, done, _ := s.books()
		require.Len(t, want, 2)
		require.Contains(t, want, "kernel")
		require.Positive(t, done)
		total := int64(0)
		for _, reset := range []bool{false, true, false} {
			for _, ch := range []*guest.Channel{s.process, s.kernel} {
				require.NoError(t, ch.Close())
			}
			var groups map[string]int
			require.Eventually(t, func() bool { groups, _, _ = s.books(); return len(groups) == 0 }, patience, time.Millisecond)
			_, _, removed := s.books()
			require.GreaterOrEqual(t, removed, done, "what they had had")
			for range ring {
				other.submit(1)
				total++
				other.settle(total)
			}
			if reset {
				require.NoError(t, g.Reset())
			}
			s.load()
			groups, present, after := s.books()
			require.Positive(t, present)
			require.Equal(t, removed, after)
			require.Contains(t, groups, "kernel")
			require.Len(t, groups, 2)
			if reset { // the driver's memory is allocated again, so its spaces are at the same addresses
				require.Equal(t, want, groups)
			}
			done = removed + present
		}
		var sums [2]sched.Account
		for _, e := range h.Agg.Ledger() {
			if e.Depth < 2 {
				for _, a := range e.Accounts {
					sums[e.Depth].Done += a.Done
				}
			}
		}
		require.Equal(t, sums[0], sums[1], "the card has what its guests have")
	})
}
