package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// lifeVRAM is little, so that the eviction test exceeds it soon.
const lifeVRAM = 128 << 20

// TestKernels takes each kernel through a driver's life in one boot: probe, every kind of
// work, faults, unbinding, a reboot, a power-off. All windows are mapped, so a function
// that depends on traps fails here.
//
// The gate runs two kernels, each on one set-up. The release suite runs all on both, and
// adds the steps that take long.
func TestKernels(t *testing.T) {
	for _, c := range []struct {
		version  string
		virtual  bool
		release  bool
		suspends int // in the gate
	}{
		{version: "6.12"},
		{version: "7.2", virtual: true, suspends: 3},
		{version: "6.1", virtual: true, release: true},
		{version: "6.1", release: true},
		{version: "6.12", virtual: true, release: true},
		{version: "7.2", release: true},
	} {
		name := c.version + " pass-through"
		if c.virtual {
			name = c.version + " virtual"
		}
		t.Run(name, func(t *testing.T) {
			if c.release {
				scale.ReleaseOnly(t)
			}
			t.Parallel()
			life(t, kernelOf(c.version), c.virtual, scale.Of(c.suspends, 50))
		})
	}
}

func life(t *testing.T, k kernel, isVirtual bool, suspends int) {
	var b *fixture
	machine := lab.Config{Kernel: k.Version, CPUs: k.CPUs, Reboot: true, Suspend: suspends > 0}
	if isVirtual {
		b, _ = virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 2 * lifeVRAM}},
			serve.GPUConfig{Share: aggregator.GuestConfig{VRAM: lifeVRAM, Map: aperture.MapAll}}, machine)
	} else {
		b = start(t, testserver.Config{
			Card:    soft.Config{VRAM: lifeVRAM},
			Windows: passthrough.Config{Map: aperture.MapAll},
			Machine: machine,
		})
	}
	quick := !scale.Release()
	b.step("probe", func(b *fixture) { b.probe(k); b.identity("msi", lifeVRAM) })
	mark := b.mark()
	if k.doorbells > 0 {
		b.step("traps", func(b *fixture) { b.requireFewTraps(k, isVirtual) })
	}
	b.step("m2mf", func(b *fixture) { b.copies(proto.CmdM2MF) })
	b.step("ce", func(b *fixture) { b.copies(proto.CmdCE) })
	b.step("fences", func(b *fixture) { b.fences(scale.Of(50, 200)) })
	if k.exec {
		b.step("exec", func(b *fixture) { b.exec(k) })
	}
	b.step("interrupts", func(b *fixture) { b.requireInterrupts(k) })
	b.step("moves", func(b *fixture) { b.moves(k) })
	if !quick {
		b.step("evict", func(b *fixture) { b.evict(k) })
	}
	b.step("clean after work", func(b *fixture) {
		b.requireClean(k, mark, 0)
		b.requireNoHoles()
	})
	b.attempt("offences", func(b *fixture) { b.offend(offences) })
	if !quick {
		b.step("intx", func(b *fixture) {
			b.rmmod()
			b.probe(k, "config=NvMSI=0")
			b.identity("intx", lifeVRAM)
			b.requireInterrupts(k)
			b.copies(proto.CmdM2MF)
			b.rmmod()
			b.probe(k)
			require.Equal(b.t, "msi", b.function().IRQMode)
		})
	}
	b.step("unbind and bind", func(b *fixture) { b.rebind(k, scale.Of(1, 20)) })
	if suspends > 0 {
		b.step("suspend", func(b *fixture) { b.suspend(k, suspends) })
	}
	b.step("reboot", func(b *fixture) {
		require.NoError(b.t, b.VM.Reboot(b.ctx))
		b.probe(k)
		b.copies(proto.CmdM2MF)
	})
	if !quick && !isVirtual {
		b.step("QEMU dies in the middle of copies", (*fixture).killInLoad)
		b.step("new machine on the same card", func(b *fixture) {
			require.NoError(b.t, b.Boot(b.ctx))
			b.probe(k)
			b.copies(proto.CmdM2MF)
			b.copies(proto.CmdCE)
		})
	}
	b.step("poweroff", (*fixture).poweroff)
}

// identity checks the PCI function and the chip.
func (b *fixture) identity(irqMode string, vram uint64) {
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
	log := texts(b.logAfter(0))
	require.Contains(b.t, log, "NVIDIA GF100 (0c0")
	require.Contains(b.t, log, fmt.Sprintf(" %d MiB ", vram>>20))
}

// rebind takes the card from the driver and gives it back, several times.
func (b *fixture) rebind(k kernel, cycles int) {
	mark := b.mark()
	var r proto.BindResult
	b.call(proto.CmdBind, proto.BindArgs{Count: cycles}, &r)
	require.Len(b.t, r.Cycles, cycles)
	for _, c := range r.Cycles {
		require.ElementsMatch(b.t, []string{"/dev/dri/card0", "/dev/dri/renderD128"}, c.Nodes)
	}
	b.requireMover(k, b.requireClean(k, mark, cycles), cycles)
	b.copies(k.copies)
	b.requireNoHoles()
}

// suspend suspends the machine to RAM again and again, while a process copies and checks what it
// keeps in VRAM. The kernel moves that out of VRAM and back by the GPU. It logs how long the kernel
// took to resume.
func (b *fixture) suspend(k kernel, cycles int) {
	const kept = 16 << 20
	mark := b.mark()
	b.call(proto.CmdLoad, proto.LoadArgs{Bytes: 1 << 20, KeepBytes: kept, EveryMS: 50, ProgressMS: 50}, nil)
	var l proto.LoadTotals
	w := b.during(func() {
		for range cycles {
			ctx, cancel := context.WithTimeoutCause(b.ctx, callPatience, errors.New("the guest did not wake up"))
			require.NoError(b.t, b.VM.Suspend(ctx))
			cancel()
			from := len(b.VM.Agent().Events())
			l = b.progress(from, 0)
			b.progress(from, l.Checks+2) // one of them began after it woke up
		}
	})
	b.call(proto.CmdLoadStop, nil, &l)
	b.requireKernelMoved(k, w, 2*uint64(cycles)*kept, 2*uint64(cycles)*kept)
	var woken time.Duration
	var resumes []time.Duration
	for _, line := range b.requireClean(k, mark, 0) {
		switch {
		case strings.Contains(line.Text, "Waking up from system sleep state S3"):
			woken = line.Time()
		case strings.Contains(line.Text, "PM: suspend exit"):
			resumes = append(resumes, line.Time()-woken)
		}
	}
	require.NotZero(b.t, woken)
	require.Len(b.t, resumes, cycles)
	slices.Sort(resumes)
	b.t.Logf("%d resumes, %d checks of %d MiB: median %v, longest %v", cycles, l.Checks, kept>>20, resumes[cycles/2], resumes[cycles-1])
	b.requireNoHoles()
}

// progress waits until a load has made so many checks, and requires that all its data was right.
func (b *fixture) progress(from int, checks uint64) (l proto.LoadTotals) {
	b.t.Helper()
	for first := true; first || l.Checks < checks; first = false {
		e, next, err := b.VM.Agent().WaitEvent(b.ctx, proto.EventLoad, from)
		require.NoError(b.t, err)
		require.NoError(b.t, json.Unmarshal(e.Data, &l))
		require.Empty(b.t, l.Error)
		require.Zero(b.t, l.Wrong, "copies")
		require.Zero(b.t, l.Lost, "words of data that was in VRAM")
		from = next
	}
	return l
}

// killInLoad ends QEMU as a crash would, while the card accesses the guest's memory.
func (b *fixture) killInLoad() {
	b.call(proto.CmdLoad, proto.LoadArgs{Clients: 2, Bytes: 1 << 20, ProgressMS: 50}, nil)
	require.NotZero(b.t, b.progress(len(b.VM.Agent().Events()), 0).Copies)
	b.VM.Kill()
}
