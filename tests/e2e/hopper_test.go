package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// hopperVRAM is 4 GiB for the driver, and the part of GSP. It is sparse.
const hopperVRAM = 4<<30 + gsp.Reserved

// Bounds on traps of a guest with a GH100, all windows mapped.
const (
	hopperProbeTraps     = uint64(1500) // up to renderD128
	hopperClientTraps    = uint64(200)  // a client's start, until its first submission is done
	hopperCopyTraps      = uint64(1000) // copies each way
	hopperInterruptTraps = uint64(8)    // an interrupt
)

// hopper boots a machine on a virtual GH100 of a card with as much memory again.
func hopper(t *testing.T, machine lab.Config) *fixture {
	machine.Chip = lab.ChipGH100
	b, _ := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}},
		serve.GPUConfig{Device: serve.GH100{}, Share: aggregator.GuestConfig{VRAM: hopperVRAM, Map: aperture.MapAll}}, machine)
	return b
}

// TestHopper takes each kernel through a driver's life on a GH100, with its firmware, in one boot. The gate
// runs one, with Mesa's Vulkan driver.
func TestHopper(t *testing.T) {
	for _, version := range lab.KernelsGH100 {
		t.Run(version, func(t *testing.T) {
			machine := lab.Config{Kernel: version, Reboot: true, Suspend: true}
			if version == "7.2" {
				machine.Mesa, machine.Programs = "26", []string{"programs/vulkan/timeline.c"}
			} else {
				scale.ReleaseOnly(t)
			}
			if _, err := exec.LookPath("gcc"); err != nil {
				machine.Mesa, machine.Programs = "", nil // programs cannot be compiled
			}
			t.Parallel()
			b := hopper(t, machine)
			k := kernel{Kernel: row(lab.ChipGH100, version), doorbells: 1, copies: proto.CmdCE, exec: true}
			b.hopperLife(k, machine.Mesa != "")
		})
	}
}

func (b *fixture) hopperLife(k kernel, vulkan bool) {
	b.step("probe", func(b *fixture) {
		begin := b.totalTraps()
		b.probe(k)
		b.requireTraps(begin, hopperProbeTraps)
		f := b.function()
		require.EqualValues(b.t, 0x2331, f.Device)
		require.EqualValues(b.t, 0x030200, f.Class)
		require.Equal(b.t, "msi", f.IRQMode)
		log := texts(b.logAfter(0))
		require.Contains(b.t, log, "NVIDIA GH100 (180000a1)")
		require.Contains(b.t, log, "gsp: RM version: 570.144")
	})
	mark := b.mark()
	b.step("traps", func(b *fixture) { b.hopperTraps(k) })
	b.step("copies", func(b *fixture) { b.copies(k.copies) })
	b.step("exec", func(b *fixture) { b.exec(k) })
	b.step("fences", func(b *fixture) { b.fences(scale.Of(50, 200)) })
	b.step("interrupts", func(b *fixture) { b.requireInterrupts(k) })
	b.step("moves", func(b *fixture) { b.moves(k) })
	if vulkan {
		b.step("vulkan", (*fixture).vulkan)
	}
	b.step("clean after work", func(b *fixture) {
		b.requireClean(k, mark, 0)
		b.requireNoHoles()
	})
	b.attempt("offences", func(b *fixture) { b.offend(hopperOffences) })
	b.step("unbind and bind", func(b *fixture) { b.rebind(k, scale.Of(1, 20)) })
	b.step("suspend", func(b *fixture) { b.suspend(k, scale.Of(2, 20)) })
	b.step("reboot", func(b *fixture) {
		require.NoError(b.t, b.VM.Reboot(b.ctx))
		b.probe(k)
		b.copies(k.copies)
	})
	b.step("poweroff", (*fixture).poweroff)
}

// requireTraps bounds the traps since there were so many.
func (b *fixture) requireTraps(begin, most uint64) {
	b.t.Helper()
	n := b.totalTraps() - begin
	b.t.Logf("%d traps: %v", n, b.regions())
	require.Less(b.t, n, most)
}

// hopperTraps counts what a client costs. A submission is one trap, that of its doorbell, and waits are none.
// The driver has each fence interrupt while one is waited for.
func (b *fixture) hopperTraps(k kernel) {
	begin := b.totalTraps()
	b.call(proto.CmdDoorbellOpen, nil, nil)
	b.requireTraps(begin, hopperClientTraps)
	const submissions = 300
	regs := registers(b.gpu.Registers())
	begin = b.totalTraps()
	b.call(proto.CmdDoorbell, proto.DoorbellArgs{Count: submissions}, nil)
	used := minus(registers(b.gpu.Registers()), regs)
	require.Equal(b.t, accesses{0, k.doorbells * submissions}, used["NV_VIRTUAL_FUNCTION_DOORBELL"])
	interrupts := used["NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP"].reads
	b.t.Logf("%d submissions, %d interrupts", submissions, interrupts)
	require.LessOrEqual(b.t, interrupts, uint64(submissions))
	require.LessOrEqual(b.t, b.totalTraps()-begin, k.doorbells*submissions+hopperInterruptTraps*interrupts)
	b.call(proto.CmdDoorbellClose, nil, nil)
	begin = b.totalTraps()
	b.call(k.copies, proto.CopyArgs{Bytes: 256 << 10}, nil)
	b.requireTraps(begin, hopperCopyTraps)
}

// vulkan runs Mesa's NVK. The program that gives the GPU nothing to do must find that every word is wrong.
func (b *fixture) vulkan() {
	r, err := b.run("vulkaninfo", "--summary")
	require.NoError(b.t, err)
	require.Contains(b.t, r.Output, "(NVK GH100)")
	w := b.during(func() { r, err = b.run("timeline") })
	require.NoError(b.t, err)
	require.Contains(b.t, r.Output, "(NVK GH100): 0 of 262144 words wrong")
	w.requireMoved(b.t, classCopy, 1<<20)
	_, err = b.run("timeline", "noop")
	require.ErrorContains(b.t, err, "262144 of 262144 words wrong")
}
