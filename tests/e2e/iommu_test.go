package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestIOMMU boots a guest that translates the GPU's DMA by an emulated IOMMU, so that QEMU maps single
// pages and unmaps spans. The driver moves buffers to new pages, and a reboot takes an open channel's away
// and gives their bus addresses to others: a page that the server kept would be read in their place.
func TestIOMMU(t *testing.T) {
	scale.ReleaseOnly(t)
	t.Parallel()
	k := kernelOf("6.12")
	machine := lab.Config{
		Kernel: k.Version, CPUs: k.CPUs, Reboot: true, Dir: t.TempDir(), Append: []string{"intel_iommu=on"},
		QEMUArgs: []string{"-machine", "kernel-irqchip=split", "-device", "intel-iommu,caching-mode=on,intremap=on"},
	}
	b := start(t, testserver.Config{Card: soft.Config{VRAM: lifeVRAM}, Machine: machine})
	b.step("probe", func(b *fixture) { b.probe(k) })
	b.step("moves", func(b *fixture) { b.moves(k) })
	b.step("a channel that stays", func(b *fixture) { b.call(proto.CmdDoorbellOpen, nil, nil) })
	require.Contains(t, texts(b.logAfter(0)), "Adding to iommu group")
	b.step("reboot", func(b *fixture) { require.NoError(b.t, b.VM.Reboot(b.ctx)) })
	b.step("probe with other pages", func(b *fixture) { b.probe(k) })
	b.step("moves with other pages", func(b *fixture) { b.moves(k) })
	b.step("m2mf", func(b *fixture) { b.copies(proto.CmdM2MF) })
	require.NoError(t, b.VM.Poweroff(b.ctx))
	require.Zero(t, b.Card.Stats().UnmappedDMA.N.Load())
	said, err := os.ReadFile(filepath.Join(machine.Dir, "qemu.log"))
	require.NoError(t, err)
	require.Empty(t, string(said), "what QEMU says")
}
