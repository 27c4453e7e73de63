package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// promptCard is a meterCard on which a channel leaves its engine as soon as it is disabled, and
// begins anew when it is bound.
type promptCard struct{ *meterCard }

func (c promptCard) Use(id uint8) card.Use {
	u := c.meterCard.Use(id)
	u.Running = u.Running && c.Enabled(id)
	return u
}

func (c promptCard) Write32(bar int, off uint64, v uint32) {
	if id, _, ok := fakecard.Bound(bar, off, v); ok {
		c.mu.Lock()
		c.use[id], c.put[id], c.got[id] = card.Use{}, 0, 0
		c.mu.Unlock()
	}
	c.meterCard.Write32(bar, off, v)
}

// TestRunawaySiblings: whatever endless requests a guest submits, and however late the gate's
// goroutine is, requests that end do so on the guest's other channels, also after channels or the
// guest were reset.
func TestRunawaySiblings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := sched.Default()
		cfg.Policy = rapid.SampledFrom([]sched.Policy{sched.None, sched.FIFO, sched.Credit, sched.Band, sched.Timeslice, sched.DFQ}).Draw(rt, "policy")
		cfg.Watchdog.Grace, cfg.Watchdog.Offences = time.Millisecond, 0
		late := rapid.SampledFrom([]time.Duration{time.Microsecond, cfg.Watchdog.Grace / 2, 2 * cfg.Watchdog.Grace}).Draw(rt, "late")
		m := promptCard{&meterCard{fakeCard: fakecard.New(16 << 20)}}
		a := newAggOn(rt, m, patience, Options{Scheduler: &cfg, Clock: func() time.Duration { return time.Duration(m.clock.Add(int64(late))) }})
		g := addGuestWith(rt, a, GuestConfig{Group: rapid.SampledFrom([]gate.Grouping{gate.BySpace, gate.ByChannel, gate.ByGuest}).Draw(rt, "group")})
		const channels = 3
		var put [channels]uint32
		var endless [channels]bool
		var ids [channels]uint8
		start := func(i uint8) {
			put[i], endless[i] = 0, false
			writePut(g, i, 0)
			bindChannelAt(rt, g, i, dirAt+uint64(i/2)*0x10000)
			ids[i] = number(g, i)
		}
		for i := range uint8(channels) {
			start(i)
		}
		// work lets the card work for each channel that may run, and reports whether all has ended
		// that ends.
		work := func() bool {
			done := true
			for i, id := range ids {
				switch {
				case !m.Enabled(id) || int(m.Use(id).Ended) == m.entries(id):
				case endless[i]:
					m.run(id, cfg.Watchdog.Limit/2, true)
				default:
					m.end(id, 1, time.Millisecond)
				}
				done = done && (endless[i] || m.Use(id).Ended == uint64(put[i]))
			}
			a.Ledger()
			return done || g.QuarantineReason() != ""
		}
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			i := rapid.Uint8Max(channels-1).Draw(rt, "channel")
			switch rapid.IntRange(0, 4).Draw(rt, "act") {
			case 0:
				start(i)
			case 1:
				require.NoError(rt, g.Reset())
				for i := range uint8(channels) {
					start(i)
				}
			default:
				endless[i] = true
			}
			for i := range uint8(channels) {
				put[i] += rapid.Uint32Range(0, 3).Draw(rt, "entries")
				writePut(g, i, put[i])
			}
			require.Eventually(rt, work, patience, tick/10)
			require.Empty(rt, g.QuarantineReason())
		}
	})
}
