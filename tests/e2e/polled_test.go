package e2e

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestPolledDoorbells: a stock kernel whose doorbells nobody traps probes, copies with
// data that is checked, and powers off, and never makes an access to BAR1 or BAR3 that
// the server hears of. A submission that is awaited in memory is no trap at all.
func TestPolledDoorbells(t *testing.T) {
	t.Run("pass-through", func(t *testing.T) {
		var traps *serve.Counted
		b := start(t, stand.Config{
			Card: soft.Config{Map: homes.MapAll, Doorbell: doorbell.Poll},
			Device: func(c *soft.Card) vfiouser.Device {
				traps = serve.Count(serve.NewPassThrough(c), slog.New(slog.DiscardHandler))
				return traps
			},
			Machine: lab.Config{Kernel: "6.12", CPU: "max"},
		})
		stats := b.Card.Stats()
		polledDay(b, traps, b.Card.Registers(), &stats.Windows, &stats.Poller, stats.Poller.Rings.Load)
	})
	t.Run("virtual", func(t *testing.T) {
		machines <- struct{}{}
		t.Cleanup(func() { <-machines })
		s, err := stand.NewShared(soft.Config{VRAM: 1 << 30}, 0, 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.AddGPU(aggregator.GuestConfig{
			Name: "gpu", VRAM: 512 << 20, Map: homes.MapAll, Doorbell: doorbell.Poll,
		}))
		gpu := s.GPUs[0]
		vm, err := lab.Start(t.Context(), lab.Config{Kernel: "6.12", CPU: "max", Sockets: []string{gpu.Socket}})
		require.NoError(t, err)
		t.Attr("kernel", vm.Kernel()+" under "+vm.Accel().Name)
		t.Cleanup(func() { require.NoError(t, vm.Close()) })
		b := &bed{&stand.Stand{Card: s.Card, VM: vm}, t, t.Context()}
		guest := gpu.Guest.Stats()
		polledDay(b, gpu.Watched, gpu.GPU.Registers(), &guest.Mapped, s.Poller(), guest.PolledBells.Load)
	})
}

func polledDay(b *bed, traps *serve.Counted, regs *mmio.Space, windows *homes.Stats, poller *doorbell.Stats, found func() uint64) {
	b.call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	b.requireSilentWaits(traps, regs, 0)
	before, rings := total(traps), found()
	b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil)
	copies := found() - rings
	b.t.Logf("copies: %d doorbells found, %d traps", copies, total(traps)-before)
	require.NotZero(b.t, copies)
	looks, cpu, begin := poller.Looks.Load(), poller.CPU.Load(), time.Now()
	time.Sleep(2 * time.Second)
	b.t.Logf("idle: %d looks and %v of a processor in %v", poller.Looks.Load()-looks, time.Duration(poller.CPU.Load()-cpu), time.Since(begin))
	_, err := b.Poweroff(b.ctx)
	require.NoError(b.t, err)
	for _, r := range traps.Traps() {
		b.t.Logf("%s: %d reads, %d writes", r.Region, r.Reads, r.Writes)
		require.NotContains(b.t, []string{"BAR1", "BAR3"}, r.Region)
	}
	for _, c := range windows.Counts() {
		b.t.Logf("%s: %d", c.Name, c.N)
	}
	b.t.Logf("%d looks, %d rings, found within %v (half), %v (99 %%), %v of a processor", poller.Looks.Load(), poller.Rings.Load(),
		poller.Reaction(0.5), poller.Reaction(0.99), time.Duration(poller.CPU.Load()))
	require.Zero(b.t, windows.Aliases.Load()+windows.RunsRefused.Load()+windows.MovesRefused.Load()+windows.PollArea.Load()+windows.Lost.Load())
}
