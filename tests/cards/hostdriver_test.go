package cards_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/rm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/fakerm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestHostDriver: drivers of two GH100s, which map BAR2, copy through the whole server on a card of the host's driver. The
// end of one guest's process quarantines that guest alone.
func TestHostDriver(t *testing.T) {
	workers := make(map[int]*worker.Worker)
	gpu, err := rm.Open(rm.Config{Log: t.Logf}, func(share int, ev worker.Events) (w *worker.Worker, err error) {
		w, err = worker.InProcess(&fakerm.Driver{VRAM: 80 << 30}, worker.Config{}, ev)
		workers[share] = w
		return w, err
	})
	require.NoError(t, err)
	s, err := serve.ShareGPU(gpu, serve.Native, vfiouser.Options{Log: slog.New(slog.DiscardHandler)}, aggregator.Options{Guests: 4})
	require.NoError(t, err)
	var copiers []*rig.Copier
	var ends []*serve.Endpoint
	for i := range 2 {
		cfg := rig.Hopper.GPU(aggregator.GuestConfig{Name: fmt.Sprint("guest", i), Channels: 4, Map: aperture.MapBAR3})
		cfg.Socket = t.TempDir() + "/socket"
		e, err := s.Add(cfg)
		require.NoError(t, err)
		c, err := rig.NewCopier(rig.Hopper, cfg.Socket, guest.Config{RAM: 8 << 20, Map: true}, i)
		require.NoError(t, err)
		copiers, ends = append(copiers, c), append(ends, e)
	}
	for range 50 {
		for _, c := range copiers {
			require.NoError(t, c.Copy())
		}
	}
	require.NoError(t, copiers[0].Reset())
	require.NoError(t, copiers[0].Prepare())
	require.NoError(t, copiers[0].Copy())
	require.NoError(t, workers[1].Close())
	require.Eventually(t, func() bool { return ends[1].Virtual.Guest.QuarantineReason() != "" }, rig.Patience, rig.Patience/1000)
	require.Contains(t, ends[1].Virtual.Guest.QuarantineReason(), "process")
	require.NoError(t, copiers[0].Copy())
	require.Empty(t, ends[0].Virtual.Guest.QuarantineReason())
	for _, c := range copiers {
		require.NoError(t, c.Close())
	}
	require.NoError(t, s.Close())
}
