package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/pci"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestOtherBoard serves a function without the MSI capability: the driver uses its interrupt pin. It has all
// the memory of a Quadro 6000, on six partitions. The memory is sparse, so the test costs only what it touches.
func TestOtherBoard(t *testing.T) {
	scale.ReleaseOnly(t)
	t.Parallel()
	k := kernelOf("6.12")
	b := start(t, testserver.Config{
		Card:    soft.Config{VRAM: gf100.MaxVRAM, PCI: pci.Options{NoMSI: true}},
		Machine: lab.Config{Kernel: k.Version},
	})
	b.probe(k)
	const capMSI = 0x05
	require.NotContains(t, b.function().Capabilities, capMSI)
	b.identity("intx", gf100.MaxVRAM)
	b.requireInterrupts(k)
	b.fences(100)
	b.copies(proto.CmdM2MF)
	// Buffers fill the memory from below, the driver's own structures from above.
	const clients, kept = 4, 16 << 20
	var sum proto.LoadTotals
	w := b.during(func() {
		b.call(proto.CmdLoad, proto.LoadArgs{Clients: clients, KeepBytes: kept}, nil)
		b.call(proto.CmdLoadStop, nil, &sum)
	})
	w.requireMoved(t, classM2MF, (clients+sum.Checks)*kept)
	require.NoError(t, b.VM.Poweroff(b.ctx))
}
