package e2e

import (
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// Classes that move bytes.
const (
	classM2MF = nouveau.ClassM2MF
	classCE0  = nouveau.ClassCE0
	classCE1  = nouveau.ClassCE1
	classCopy = nouveau.ClassCopy
)

// kernel is a stock kernel with its driver's properties.
type kernel struct {
	nouveau.Kernel
	doorbells uint64 // of one submission; 0 if the tests do not count them
	copies    string // the command that copies with the engine that stages too
	exec      bool   // it has VM_BIND and EXEC
}

// stager is the class with which the guest program fills and reads VRAM.
func (k kernel) stager() uint16 {
	if k.Chip == "" {
		return classM2MF
	}
	return k.Mover
}

// 6.12 writes one doorbell for the work and one for the fence after it. 7.2 submits both
// together.
var kernels = []kernel{
	{Kernel: row("", "6.1"), copies: proto.CmdM2MF},
	{Kernel: row("", "6.12"), doorbells: 2, copies: proto.CmdM2MF, exec: true},
	{Kernel: row("", "7.2"), doorbells: 1, copies: proto.CmdM2MF, exec: true},
}

func row(chip, version string) nouveau.Kernel {
	k, ok := nouveau.Of(chip, version)
	if !ok {
		panic("no row for kernel " + version)
	}
	return k
}

func kernelOf(version string) kernel {
	i := slices.IndexFunc(kernels, func(k kernel) bool { return k.Version == version })
	return kernels[i]
}

// requireClean fails if the kernel's log since mark is not that of so many probes
// of a whole card. It returns the log.
func (b *fixture) requireClean(k kernel, mark uint64, probes int) []lab.LogLine {
	b.t.Helper()
	lines := b.logAfter(mark)
	require.Empty(b.t, k.Problems(lines, probes))
	return lines
}

// requireMover fails if the kernel did not choose its engine in every probe.
func (b *fixture) requireMover(k kernel, lines []lab.LogLine, probes int) {
	b.t.Helper()
	require.Equal(b.t, slices.Repeat([]string{k.MoverName}, probes), nouveau.Movers(lines))
}

func (b *fixture) nodes() []string {
	b.t.Helper()
	var dri proto.DRIResult
	b.call(proto.CmdDRI, nil, &dri)
	names := []string{}
	for _, n := range dri.Nodes {
		require.Equal(b.t, "nouveau", n.Driver, "%s: %s", n.Path, n.Error)
		names = append(names, filepath.Base(n.Path))
	}
	return names
}

// probe loads the driver and checks everything that a whole card shows.
func (b *fixture) probe(k kernel, options ...string) {
	b.t.Helper()
	mark := b.mark()
	b.modprobe(options...)
	require.ElementsMatch(b.t, []string{"card0", "renderD128"}, b.nodes())
	b.requireMover(k, b.requireClean(k, mark, 1), 1)
	b.requireNoHoles()
}

// function is the card on the guest's PCI bus.
func (b *fixture) function() proto.PCIFunction {
	b.t.Helper()
	var pci proto.PCIResult
	b.call(proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci)
	require.Len(b.t, pci.Functions, 1)
	return pci.Functions[0]
}
