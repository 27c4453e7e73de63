package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestAccounts: bytes that engines move are counted for the guest that owns the
// channel, and a guest that gets a removed guest's number starts at zero.
func TestAccounts(t *testing.T) {
	c := newCard(t)
	s := share(t, c, Native, vfiouser.Options{}, aggregator.Options{})
	add := func(name string) *Endpoint { return s.add(aggregator.GuestConfig{Name: name, VRAM: testedVRAM}) }

	const src, dst, size = 0x1000_0000, 0x2000_0000, 64 << 10
	copies := func(v *Endpoint, by guest.Engine, n int) {
		g, err := guest.Attach(t.Context(), v.Config.Socket, guest.Config{})
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close()) }()
		space, err := g.NewSpace()
		require.NoError(t, err)
		for _, va := range []uint64{src, dst} {
			b, err := g.AllocVRAM(size)
			require.NoError(t, err)
			require.NoError(t, space.Map(va, b, guest.Small))
		}
		ch, err := g.NewChannel(1, space)
		require.NoError(t, err)
		for range n {
			require.NoError(t, ch.Copy(by, dst, src, size))
		}
		require.NoError(t, ch.Finish())
	}
	const (
		ce   = "90b5"
		m2mf = "9039"
	)
	want := func(v *Endpoint, class string, n uint64) {
		t.Helper()
		r := v.Report()
		if n == 0 {
			require.Empty(t, r.Work)
			return
		}
		require.Len(t, r.Work, 1)
		require.Equal(t, class, r.Work[0].Class)
		require.Equal(t, n*size, r.Work[0].Bytes)
		require.GreaterOrEqual(t, r.Work[0].Copies, n)
	}
	a, b, idle := add("a"), add("b"), add("idle")
	copies(a, guest.CE0, 3)
	copies(b, guest.M2MF, 5)
	copies(b, guest.M2MF, 2) // another client of the same GPU
	want(a, ce, 3)
	want(b, m2mf, 7)
	want(idle, "", 0)
	total := uint64(0)
	for _, k := range ReportCard(c).Classes {
		total += k.Bytes
	}
	require.Equal(t, uint64(10*size), total)

	require.Eventually(t, func() bool { return !a.Device.HasClient() }, patience, time.Millisecond)
	owner := a.Virtual.Guest.Owner()
	err := s.remove("a", false)
	require.NoError(t, err)
	next := add("next")
	require.Equal(t, owner, next.Virtual.Guest.Owner())
	want(next, "", 0)
	copies(next, guest.CE0, 1)
	want(next, ce, 1)
}
