package e2e

import (
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
)

// Classes that move bytes.
const (
	classM2MF = nouveau.ClassM2MF
	classCE0  = nouveau.ClassCE0
	classCE1  = nouveau.ClassCE1
)

// kernel is what a kernel does, and how much of these tests it is put through.
type kernel struct {
	nouveau.Kernel
	// fullSuites runs the long versions of the copy suites. The card does the
	// same for every kernel; once is enough.
	fullSuites bool
	cycles     int // of unbind and bind
	own        int // channels that the driver makes for itself, in one address space
}

var kernels = []kernel{
	{Kernel: row("6.1"), cycles: 5, own: 2},
	{Kernel: row("6.12"), fullSuites: true, cycles: 20, own: 1},
	{Kernel: row("7.2"), cycles: 5, own: 1},
}

func row(version string) nouveau.Kernel {
	k, ok := nouveau.Of(version)
	if !ok {
		panic("no row for kernel " + version)
	}
	return k
}

func kernelOf(version string) kernel {
	for _, k := range kernels {
		if k.Version == version {
			return k
		}
	}
	panic("no row for kernel " + version)
}

// requireClean wants of the kernel's log what a number of probes of a whole card
// leave there. It returns the lines.
func (b *bed) requireClean(k kernel, mark uint64, probes int) []lab.LogLine {
	b.t.Helper()
	lines := b.logAfter(mark)
	require.Empty(b.t, k.Problems(lines, probes))
	return lines
}

// requireMover wants the kernel to have chosen its engine in every probe.
func (b *bed) requireMover(k kernel, lines []lab.LogLine, probes int) {
	b.t.Helper()
	require.Equal(b.t, slices.Repeat([]string{k.MoverName}, probes), nouveau.Movers(lines))
}

func (b *bed) nodes() []string {
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

// probe loads the driver and wants everything that a whole card shows of itself.
func (b *bed) probe(k kernel, options ...string) {
	b.t.Helper()
	mark := b.mark()
	b.modprobe(options...)
	require.ElementsMatch(b.t, []string{"card0", "renderD128"}, b.nodes())
	b.requireMover(k, b.requireClean(k, mark, 1), 1)
	b.requireNoHoles()
}

// function is the card as the guest's PCI bus shows it.
func (b *bed) function() proto.PCIFunction {
	b.t.Helper()
	var pci proto.PCIResult
	b.call(proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci)
	require.Len(b.t, pci.Functions, 1)
	return pci.Functions[0]
}
