package aggregator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestPoliciesEqualFullRebuilds: under every policy, and while policies change,
// the work that the card gets sees the guest's tables as a full rebuild would make
// them.
func TestPoliciesEqualFullRebuilds(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			draws, doorbells, compared := 0, 0, 0
			rapid.Check(t, func(t *rapid.T) {
				d := newRandomGuest(t, policy)
				defer d.end()
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					d.step()
				}
				d.invalidate(0) // for any draw, something is compared
				d.submit(0)
				draws++
				doorbells, compared = doorbells+d.doorbells, compared+d.compared
			})
			t.Log(doorbells, "submissions,", compared, "of them after an invalidate")
			require.GreaterOrEqual(t, compared, draws, "a submission right after an invalidate was not compared")
		})
	}
}

// TestBusyChannelsAreNotDeferred: an invalidate of a space with work under way is done
// immediately.
func TestBusyChannelsAreNotDeferred(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	ch := g.cardChannel(1)
	for _, busy := range []uint32{gf100.ChannelBusy, gf100.ChannelPending, 0} {
		gpu(g).Channel(1, devgf100.Doorbell, 0)
		settleRound(g)
		f.SetChannel(ch.Card().ID(), busy|1)
		require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, []byte{byte(busy >> 22)}))
		scans := g.stats.Shadow.Scans.Load()
		invalidate(g)
		settleRound(g)
		require.Equal(t, busy != 0, g.stats.Shadow.Scans.Load() > scans, "%#x", busy)
	}
	// Deferred invalidates are flushed before anything else lets a channel run, too.
	for name, start := range map[string]func(){
		"enable":   func() { gpu(g).Channel(1, devgf100.Enable, 1) },
		"schedule": func() { gpu(g).Set(devgf100.MayRun, 0); gpu(g).Set(devgf100.MayRun, 1) },
		"runlist": func() {
			writeEntry(t, g, listAt, 1)
			gpu(g).Runlist(listAt>>12, 0x01f00001)
		},
	} {
		require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, []byte{4}))
		invalidate(g)
		require.False(t, gpu(g).Pending().Invalidate)
		scans := g.stats.Shadow.Scans.Load()
		start()
		settleRound(g)
		require.Greater(t, g.stats.Shadow.Scans.Load(), scans, name)
		scans = g.stats.Shadow.Scans.Load()
		g.Doorbell(1)
		settleRound(g)
		require.Equal(t, scans, g.stats.Shadow.Scans.Load(), "nothing is deferred after %s", name)
		f.SetChannel(ch.Card().ID(), 1)
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
	require.False(t, gpu(g).Pending().Invalidate)
	f.Hold(invalidates, true)
	f.Forget()
	gpu(g).Channel(1, devgf100.Doorbell, 0)
	require.Eventually(t, func() bool { return len(f.WritesTo(regInvalidate, 4)) > 0 }, patience, tick/10)
	require.False(t, gpu(g).Pending().Invalidate, "of what the guest asked for")
	change(shadowpt.PDE{})
	require.True(t, gpu(g).Pending().Invalidate)
	f.Hold(invalidates, false)
	settleRound(g)
	require.False(t, gpu(g).Pending().Invalidate)
}
