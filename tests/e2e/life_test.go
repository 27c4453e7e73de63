package e2e

import (
	"encoding/json"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// TestKernels leads each kernel through a whole life with the card: probe, every
// kind of work, mistakes, other interrupts, unbinding, a reboot, a death in the
// middle of a copy, a poweroff.
func TestKernels(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) {
			t.Parallel()
			life(t, k)
		})
	}
}

func life(t *testing.T, k kernel) {
	var celsius atomic.Int64
	celsius.Store(45)
	b := start(t, stand.Config{
		// Little, so that little exceeds it. All is mapped that can be: what needs traps
		// to be right fails here.
		Card:    soft.Config{VRAM: 128 << 20, Map: homes.MapAll, Temperature: func() int { return int(celsius.Load()) }},
		Machine: lab.Config{Kernel: k.Version, CPUs: k.CPUs, Reboot: true},
	})
	b.step("probe", func(b *bed) { b.probe(k); b.identity("msi", 128<<20) })
	b.step("ptimer", (*bed).ptimer)
	b.step("temperature", func(b *bed) {
		b.requireTemperature(45)
		celsius.Store(61)
		b.requireTemperature(61)
	})
	mark := b.mark()
	b.step("objects", (*bed).objects)
	b.step("m2mf", func(b *bed) { b.copies(proto.CmdM2MF, !k.fullSuites) })
	b.step("ce", func(b *bed) { b.copies(proto.CmdCE, !k.fullSuites) })
	b.step("semaphores", (*bed).semaphores)
	b.step("fences", func(b *bed) { b.fences(200) })
	b.step("interrupts", (*bed).requireInterrupts)
	b.step("moves", func(b *bed) { b.moves(k) })
	b.step("evict", func(b *bed) { b.evict(k) })
	b.step("clean after work", func(b *bed) {
		b.requireClean(k, mark, 0)
		b.requireNoHoles()
	})
	b.attempt("offences", (*bed).offend)
	b.step("storm", (*bed).storm)
	b.step("intx", func(b *bed) {
		b.rmmod()
		b.probe(k, "config=NvMSI=0")
		b.identity("intx", 128<<20)
		b.requireInterrupts()
		b.copies(proto.CmdM2MF, true)
		b.rmmod()
		b.probe(k)
		require.Equal(b.t, "msi", b.function().IRQMode)
	})
	b.step("unbind and bind", func(b *bed) { b.rebind(k) })
	b.step("control: engines disabled", func(b *bed) { b.control(k) })
	b.step("reboot", func(b *bed) {
		require.NoError(b.t, b.VM.Reboot(b.ctx))
		b.probe(k)
		b.copies(proto.CmdM2MF, true)
	})
	b.step("kill in the middle of copies", (*bed).killInLoad)
	b.step("new machine on the same card", func(b *bed) {
		b.boot()
		b.probe(k)
		b.copies(proto.CmdM2MF, true)
		b.copies(proto.CmdCE, true)
	})
	b.step("poweroff", func(b *bed) {
		require.NoError(b.t, b.VM.Poweroff(b.ctx))
		b.requireNoHoles()
	})
}

// identity is what the guest must find: the PCI function and the chip.
func (b *bed) identity(irqMode string, vram uint64) {
	b.t.Helper()
	f := b.function()
	require.EqualValues(b.t, 0x06d8, f.Device)
	require.EqualValues(b.t, 0x030200, f.Class)
	require.EqualValues(b.t, 0xa3, f.Revision)
	require.Equal(b.t, "nouveau", f.Driver)
	require.Equal(b.t, irqMode, f.IRQMode)
	sizes := map[int]uint64{}
	for _, bar := range f.BARs {
		sizes[bar.Index] = bar.Size
	}
	require.Equal(b.t, map[int]uint64{0: 16 << 20, 1: 128 << 20, 3: 64 << 20, 5: 128}, sizes)
	var i proto.InfoResult
	b.call(proto.CmdInfo, nil, &i)
	require.EqualValues(b.t, 0xc0, i.Chipset)
	// Clients get what the kernel has not taken for itself.
	require.LessOrEqual(b.t, i.VRAMBytes, vram)
	require.Greater(b.t, i.VRAMBytes, vram-vram/8)
}

// ptimer wants the card's clock to run at the guest's rate. A busy host can part
// the two readings of a measurement, so the best of some counts.
func (b *bed) ptimer() {
	b.t.Helper()
	best := math.Inf(1)
	for range 10 {
		var i proto.InfoResult
		b.call(proto.CmdInfo, nil, &i)
		if math.Abs(i.PTimerRate-1) < math.Abs(best-1) {
			best = i.PTimerRate
		}
		if math.Abs(best-1) < 0.05 {
			break
		}
	}
	require.InDelta(b.t, 1, best, 0.1)
	b.t.Logf("PTIMER runs at %.3f of the guest's clock", best)
}

func (b *bed) requireTemperature(celsius int64) {
	b.t.Helper()
	var h proto.HwmonResult
	b.call(proto.CmdHwmon, nil, &h)
	for _, s := range h.Sensors {
		if s.Device == "nouveau" && s.Name == "temp1" {
			require.Empty(b.t, s.Error)
			require.Equal(b.t, celsius*1000, s.Value)
			return
		}
	}
	require.Failf(b.t, "no temperature", "%+v", h)
}

// rebind takes the card from the driver and gives it back, again and again.
func (b *bed) rebind(k kernel) {
	b.t.Helper()
	mark := b.mark()
	var r proto.BindResult
	b.call(proto.CmdBind, proto.BindArgs{Count: k.cycles}, &r)
	require.Len(b.t, r.Cycles, k.cycles)
	for _, c := range r.Cycles {
		require.ElementsMatch(b.t, []string{"/dev/dri/card0", "/dev/dri/renderD128"}, c.Nodes)
	}
	b.requireMover(k, b.requireClean(k, mark, k.cycles), k.cycles)
	b.copies(proto.CmdM2MF, true)
	b.copies(proto.CmdCE, true)
	b.requireNoHoles()
}

// killInLoad ends QEMU as a crash would while the card reads and writes the
// guest's memory.
func (b *bed) killInLoad() {
	b.t.Helper()
	b.call(proto.CmdLoad, proto.LoadArgs{Clients: 2, Bytes: 1 << 20, ProgressMS: 50}, nil)
	var l proto.LoadTotals
	for from := 0; l.Copies == 0; {
		e, next, err := b.VM.Agent().WaitEvent(b.ctx, proto.EventLoad, from)
		require.NoError(b.t, err)
		require.NoError(b.t, json.Unmarshal(e.Data, &l))
		require.Empty(b.t, l.Error)
		require.Zero(b.t, l.Wrong)
		from = next
	}
	b.VM.Kill()
}
