package e2e

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Classes that move bytes, as engine.Stats numbers them.
const (
	classM2MF = 0x9039
	classCE0  = 0x90b5
	classCE1  = 0x90b8
)

// kernel is what the three kernels differ in.
type kernel struct {
	version string
	// mover is the class that nouveau moves buffers with, and its name in the log.
	mover     uint16
	moverName string
	// knownErrors is how often one probe logs knownDriverLine, coreWarnings how
	// often coreLine.
	knownErrors, coreWarnings int
	// fullSuites runs the long versions of the copy suites. The card does the
	// same for every kernel; once is enough.
	fullSuites bool
	cycles     int // of unbind and bind
	// cpus is the number of processors for machines that run this kernel; 0 for
	// the usual.
	cpus int
}

// A wait for a fence is lost now and then in nouveau of 6.1 on more than one
// processor, and gives up after 30 s with EBUSY: nvif_notify_func clears the
// mark of "armed" only after its callback, which has woken the waiter by then;
// if that waits for its next fence at once, on another processor, it finds the
// mark still set and does not arm the event again. Later kernels have other code.
var kernels = []kernel{
	{version: "6.1", mover: classCE1, moverName: "COPY1", cycles: 5, cpus: 1},
	{version: "6.12", mover: classM2MF, moverName: "M2MF", knownErrors: 1, coreWarnings: 1, fullSuites: true, cycles: 20},
	{version: "7.2", mover: classM2MF, moverName: "M2MF", knownErrors: 1, coreWarnings: 1, cycles: 5},
}

func kernelOf(version string) kernel {
	for _, k := range kernels {
		if k.version == version {
			return k
		}
	}
	panic("no row for kernel " + version)
}

// knownDriverLine is nouveau's own failure on every Fermi since the rework of
// its channel code: it asks for a privileged copy channel, which its Fermi code
// cannot make, and copies with M2MF instead.
const knownDriverLine = "failed to create ce channel, -22"

// coreLine is not nouveau's but that of DRM's framebuffer emulation, which puts
// the device's name before it: since 6.2 or so it warns of every device that has
// no plane to show a console on, as it does of any card without a display.
const coreLine = "[drm] No compatible format found"

// requireClean wants of the kernel's log what a number of probes of a whole card
// leave there: on 6.1 no line of nouveau's of level warning or worse, on the
// others one known line each. It returns the lines.
func (b *bed) requireClean(k kernel, mark uint64, probes int) []lab.LogLine {
	b.t.Helper()
	lines := b.logAfter(mark)
	known, core := 0, 0
	var rest []string
	for _, l := range lab.Warnings(lines, "nouveau") {
		switch {
		case strings.Contains(l.Text, knownDriverLine):
			known++
		case strings.HasSuffix(l.Text, coreLine):
			core++
		default:
			rest = append(rest, l.String())
		}
	}
	require.Empty(b.t, rest)
	require.Equal(b.t, probes*k.knownErrors, known, knownDriverLine)
	require.Equal(b.t, probes*k.coreWarnings, core, coreLine)
	return lines
}

// requireMover wants the kernel to have chosen its engine in every probe.
func (b *bed) requireMover(k kernel, lines []lab.LogLine, probes int) {
	b.t.Helper()
	want := fmt.Sprintf("MM: using %s for buffer copies", k.moverName)
	require.Equal(b.t, probes, strings.Count(texts(lines), want), want)
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
