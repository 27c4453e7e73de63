package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// TestSharedCard runs four machines with three kernels on one card, each with a
// virtual GPU of its own. Each probes as it does on a card of its own, all copy
// at the same time, and one after the other reboots while the others copy on.
func TestSharedCard(t *testing.T) {
	labtest.Need(t)
	const vram = 128 << 20
	versions := []string{"6.1", "6.12", "7.2", "6.12"}
	// Both places of machines: four of them need what two usually have.
	machines <- struct{}{}
	machines <- struct{}{}
	t.Cleanup(func() { <-machines; <-machines })

	s, err := stand.NewShared(soft.Config{VRAM: 1 << 30}, len(versions), vram)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)

	beds := make([]*bed, len(versions))
	for i, version := range versions {
		// One after the other: a machine that boots takes a whole processor.
		vm, err := lab.Start(ctx, lab.Config{
			Kernel: version, Sockets: []string{s.GPUs[i].Socket}, CPUs: 1, Memory: 512, Reboot: true,
		})
		require.NoError(t, err)
		t.Attr("kernel", vm.Kernel()+" under "+vm.Accel().Name)
		beds[i] = &bed{&stand.Stand{Card: s.Card, VM: vm}, t, ctx}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(vm.Diagnosis())
			}
			require.NoError(t, vm.Close())
		})
	}
	each := func(name string, f func(b *bed, k kernel, gpu *stand.Seat)) {
		t.Helper()
		ok := t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			for i, b := range beds {
				all.Go(func() {
					t.Run(versions[i], func(t *testing.T) { f(&bed{b.Stand, t, ctx}, kernelOf(versions[i]), s.GPUs[i]) })
				})
			}
			all.Wait()
		})
		if !ok {
			t.FailNow()
		}
	}
	each("probe", func(b *bed, k kernel, gpu *stand.Seat) {
		b.sharedProbe(k)
		b.identity("msi", vram)
		requireDeclared(b.t, gpu.GPU.Registers())
	})
	each("copies", func(b *bed, _ kernel, _ *stand.Seat) {
		b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil)
		b.call(proto.CmdCE, proto.CopyArgs{Quick: true}, nil)
	})
	each("semaphores", func(b *bed, _ kernel, _ *stand.Seat) { b.call(proto.CmdSemaphores, nil, nil) })
	each("load", func(b *bed, _ kernel, _ *stand.Seat) { b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil) })
	for i, b := range beds[:3] { // one of each kernel
		t.Run("reboot "+versions[i]+" while the others copy", func(t *testing.T) {
			b := &bed{b.Stand, t, ctx}
			require.NoError(t, b.VM.Reboot(ctx))
			b.sharedProbe(kernelOf(versions[i]))
			b.call(proto.CmdM2MF, proto.CopyArgs{Quick: true}, nil)
			b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 64 << 10}, nil)
		})
	}
	each("a fault of one", func(b *bed, _ kernel, gpu *stand.Seat) {
		if gpu == s.GPUs[0] {
			b.call(proto.CmdFault, proto.OffenceArgs{}, nil)
			require.NotZero(b.t, gpu.Guest.Stats().MMUFaults.Load())
		}
	})
	each("end of load", func(b *bed, _ kernel, _ *stand.Seat) {
		var sum proto.LoadTotals
		b.call(proto.CmdLoadStop, nil, &sum)
		require.NotZero(b.t, sum.Copies)
		require.Zero(b.t, sum.Wrong)
		require.Empty(b.t, sum.Error)
	})
	for i, gpu := range s.GPUs {
		st := gpu.Guest.Stats()
		require.Zero(t, st.CardTimeout.Load(), versions[i])
		if i > 0 {
			require.Zero(t, st.MMUFaults.Load(), "%s heard of another guest's fault", versions[i])
		}
	}
}

// sharedProbe loads nouveau and wants what a card of one's own gives: the nodes,
// and no message but the known ones.
func (b *bed) sharedProbe(k kernel) {
	b.t.Helper()
	mark := b.mark()
	b.modprobe()
	require.Eventually(b.t, func() bool {
		var dri proto.DRIResult
		return b.try(proto.CmdDRI, nil, &dri) == nil && len(dri.Nodes) == 2
	}, time.Minute, 100*time.Millisecond, "card0 and renderD128")
	b.requireClean(k, mark, 1)
}

// requireDeclared wants every register that was touched to be a declared one.
func requireDeclared(t *testing.T, space *mmio.Space) {
	t.Helper()
	r, err := space.Report(mmio.ByCount)
	require.NoError(t, err)
	require.Empty(t, r.Missed.Holes)
}
