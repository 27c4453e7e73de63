package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// TestPolledDoorbells runs a stock kernel with polled doorbells. It probes, makes
// verified copies and powers off without one trapped access to BAR1 or BAR3. A
// submission that is awaited in memory makes no trap at all.
func TestPolledDoorbells(t *testing.T) {
	scale.ReleaseOnly(t)
	machine := lab.Config{Kernel: "6.12"}
	day := func(b *bed, found func() uint64) {
		b.modprobe()
		b.requireSilentWaits(0)
		before := found()
		b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil)
		require.Greater(b.t, found(), before)
		require.NoError(b.t, b.VM.Poweroff(b.ctx))
		require.NotContains(b.t, b.regions(), "BAR1")
		b.requireMapped()
	}
	t.Run("pass-through", func(t *testing.T) {
		b := start(t, stand.Config{Card: soft.Config{Map: homes.MapAll, Doorbell: doorbell.Poll}, Machine: machine})
		day(b, b.Card.Stats().Poller.Rings.Load)
	})
	t.Run("virtual", func(t *testing.T) {
		b, s := virtual(t, stand.SharedConfig{Card: soft.Config{VRAM: 1 << 30}},
			aggregator.GuestConfig{VRAM: 512 << 20, Map: homes.MapAll, Doorbell: doorbell.Poll}, machine)
		day(b, s.GPUs[0].Guest.Stats().PolledDoorbells.Load)
	})
}
