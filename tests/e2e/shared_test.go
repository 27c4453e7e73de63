package e2e

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestSharedCard runs four machines with three kernels on one card, each on a virtual
// GPU. Each probes as on a card of its own, all copy at the same time, and three of
// them reboot in turn while the others copy. The gate runs two guests: see e2e/demo.
func TestSharedCard(t *testing.T) {
	scale.ReleaseOnly(t)
	const vram = 128 << 20
	versions := []string{"6.1", "6.12", "7.2", "6.12"}
	claim(t, 2) // all places
	s, err := testserver.NewShared(soft.Config{VRAM: 1 << 30}, len(versions), vram)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })

	var beds []*fixture
	for i, version := range versions { // one after the other: a boot takes a whole processor
		beds = append(beds, attach(t, s, s.GPUs[i], lab.Config{Kernel: version, CPUs: 1, Memory: 512, Reboot: true}))
	}
	each := func(name string, f func(b *fixture, k kernel)) {
		t.Helper()
		ok := t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			for i, b := range beds {
				all.Go(func() { t.Run(versions[i], func(t *testing.T) { f(b.in(t), kernelOf(versions[i])) }) })
			}
			all.Wait()
		})
		if !ok {
			t.FailNow()
		}
	}
	each("probe", func(b *fixture, k kernel) {
		b.sharedProbe(k)
		b.identity("msi", vram)
		b.requireNoHoles()
	})
	each("copies", func(b *fixture, _ kernel) {
		b.call(proto.CmdM2MF, nil, nil)
		b.call(proto.CmdCE, nil, nil)
	})
	each("load", func(b *fixture, _ kernel) { b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil) })
	for i, b := range beds[:3] { // one of each kernel
		t.Run("reboot "+versions[i]+" while the others copy", func(t *testing.T) {
			b := b.in(t)
			require.NoError(t, b.VM.Reboot(b.ctx))
			b.sharedProbe(kernelOf(versions[i]))
			b.call(proto.CmdM2MF, nil, nil)
			b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
		})
	}
	t.Run("one guest's fault", func(t *testing.T) { beds[0].in(t).call(proto.CmdFault, proto.OffenceArgs{}, nil) })
	each("end of load", func(b *fixture, _ kernel) {
		var sum proto.LoadTotals
		b.call(proto.CmdLoadStop, nil, &sum)
		require.NotZero(b.t, sum.Copies)
		require.Zero(b.t, sum.Wrong)
		require.Empty(b.t, sum.Error)
	})
	for i, gpu := range s.GPUs {
		st := gpu.Guest.Stats()
		require.Zero(t, st.FIFO.CardTimeout.Load(), versions[i])
		require.Equal(t, i == 0, st.FIFO.MMUFaults.Load() > 0, "%s: only the first guest made a fault", versions[i])
	}
}
