package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestInvalidateDuringEnd: an invalidate while a channel of its space is taken off
// the card completes immediately if the channel has no work and no event left, because its
// memory may then be reused. For other channels of the space it is deferred.
func TestInvalidateDuringEnd(t *testing.T) {
	for _, c := range []struct {
		name      string
		state     uint32 // of the channel on the card
		preempted bool
		under     bool // the round that ends it is under way
		put       bool // the invalidate is deferred
	}{
		{name: "under way", preempted: true, under: true, put: true},
		{name: "to come", preempted: true, put: true},
		{name: "on a PBDMA", preempted: true, under: true, state: gf100.ChannelBusy},
		{name: "it has work, to come", preempted: true, state: gf100.ChannelPending},
		{name: "not shown to the guest", under: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, f := newAgg(t, Options{})
			g := addGuestWith(t, a, GuestConfig{})
			bindChannel(t, g, 1)
			bindChannel(t, g, 2)
			ch, id := g.cardChannel(1), number(g, 1)
			if c.preempted {
				g.Enable(1, false)
				g.Preempt(1)
			}
			release := hold(t, g)
			if c.under {
				release()
				f.Hold(preempts, true)
			}
			f.Forget()
			g.Bind(1, 0)
			if c.under {
				// The channel's register, which is set below, is not written after the preempt.
				eventually(t, g, func() bool { return !g.channels.Is(ch) && len(f.WritesTo(preempts, 4)) > 0 })
			}
			f.SetChannel(id, c.state|1)
			require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, []byte{4}))
			scans, rounds := g.stats.Shadow.Scans.Load(), g.rounds()
			invalidate(g)
			require.Equal(t, c.put, g.Invalidated())
			f.SetChannel(id, 1)
			f.Hold(preempts, false)
			release()
			settleRound(g)
			require.True(t, g.Invalidated())
			if c.put {
				require.Equal(t, scans, g.stats.Shadow.Scans.Load(), "nothing runs that could see it")
				require.LessOrEqual(t, g.rounds(), rounds+1)
			}
			g.Doorbell(2)
			require.Eventually(t, func() bool { return len(f.Doorbells()) > 0 }, patience, tick/10)
			require.Equal(t, scans+1, g.stats.Shadow.Scans.Load(), "deferred invalidates are flushed first")
		})
	}
}

// TestNoDeferralWhileChannelStarts: while a round is under way that lets a channel run, an
// invalidate of its space is the next round's, and the guest waits for it.
func TestNoDeferralWhileChannelStarts(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	change := func(pde shadowpt.PDE) {
		writeEntry(t, g, dirAt, pde.Encode())
		invalidate(g)
	}
	writeEntry(t, g, 0x200000, shadowpt.PTE{Valid: true}.Encode())
	change(shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: 0x200000}})
	require.True(t, g.Invalidated())
	f.Hold(invalidates, true)
	f.Forget()
	g.Doorbell(1)
	require.Eventually(t, func() bool { return len(f.WritesTo(regInvalidate, 4)) > 0 }, patience, tick/10)
	require.True(t, g.Invalidated(), "of what the guest asked for")
	change(shadowpt.PDE{})
	require.False(t, g.Invalidated())
	f.Hold(invalidates, false)
	settleRound(g)
	require.True(t, g.Invalidated())
}

// hold makes a guest's goroutine wait until release is called, as one that has spent its rate.
func hold(t *testing.T, g *Guest) (release func()) {
	settle(g)
	g.shadows.Charge(time.Now(), 1e15)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shadows.Charge(time.Now(), -1e15)
		g.wake.Broadcast()
	}
}
