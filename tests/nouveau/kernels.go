// Package nouveau has the differences between the stock kernels' nouveau on a chip:
// the engine for buffer moves, and log messages. The end-to-end tests and the demonstration
// compare their guests with it. It has no state.
package nouveau

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab"
)

// Classes that move bytes, as engine.Stats numbers them.
const (
	ClassM2MF = 0x9039
	ClassCE0  = 0x90b5
	ClassCE1  = 0x90b8
	ClassCopy = 0xc8b5
)

// Kernel is the behaviour of one kernel on one chip.
type Kernel struct {
	Chip    string // as lab.Config has it
	Version string
	// Mover is the class that nouveau moves buffers with, and its name in the log.
	Mover     uint16
	MoverName string
	// Known are parts of the lines of level warning or worse that a probe logs,
	// once each.
	Known []string
	// CPUs is the number of processors for machines that run this kernel; 0 for
	// the usual.
	CPUs int
}

const (
	// ErrorLine is nouveau's own failure on every Fermi since its channel code was
	// reworked: it asks for a privileged copy channel, which its Fermi code cannot
	// make, and copies with M2MF instead.
	ErrorLine = "failed to create ce channel, -22"
	// CoreLine is not nouveau's but that of DRM's framebuffer emulation: since 6.2
	// or so it warns of every device that has no plane to show a console on, as it
	// does of any card without a display.
	CoreLine = "[drm] No compatible format found"
)

// Nouveau of 6.1 sometimes loses a wait for a fence on more than one processor, and gives
// up after 30 s with EBUSY: nvif_notify_func clears the mark of "armed" only after its
// callback, which has woken the waiter by then; if that immediately waits for its next
// fence, on another processor, it finds the mark still set and does not arm the event
// again. Later kernels have other code.
var kernels = []Kernel{
	{Version: "6.1", Mover: ClassCE1, MoverName: "COPY1", CPUs: 1},
	{Version: "6.12", Mover: ClassM2MF, MoverName: "M2MF", Known: []string{ErrorLine, CoreLine}},
	{Version: "7.2", Mover: ClassM2MF, MoverName: "M2MF", Known: []string{ErrorLine, CoreLine}},
	{Chip: lab.ChipGH100, Version: "6.18", Mover: ClassCopy, MoverName: "COPY", Known: []string{CoreLine}},
	{Chip: lab.ChipGH100, Version: "7.2", Mover: ClassCopy, MoverName: "COPY", Known: []string{CoreLine}},
	{Chip: lab.ChipGH100, Version: "7.3", Mover: ClassCopy, MoverName: "COPY", Known: []string{CoreLine}},
}

// Of finds the row of a chip and a version such as "6.12", or a release of it such as
// "6.12.94+deb13-amd64". A user's own kernel may have none.
func Of(chip, release string) (Kernel, bool) {
	for _, k := range kernels {
		if chip == k.Chip && (release == k.Version || strings.HasPrefix(release, k.Version+".")) {
			return k, true
		}
	}
	return Kernel{Chip: chip, Version: release}, false
}

// Problems returns the errors in the kernel's log after a number of probes: a line of
// nouveau's of level warning or worse that is not a known one, or a known one more or less
// often than once for each.
func (k *Kernel) Problems(log []lab.LogLine, probes int) []string {
	var out []string
	seen := make([]int, len(k.Known))
next:
	for _, l := range lab.Warnings(log, "nouveau") {
		for i, known := range k.Known {
			if strings.Contains(l.Text, known) {
				seen[i]++
				continue next
			}
		}
		out = append(out, "the kernel's log has "+l.String())
	}
	for i, known := range k.Known {
		if seen[i] != probes {
			out = append(out, fmt.Sprintf("the kernel's log has %q %d times, want %d", known, seen[i], probes))
		}
	}
	return out
}

// Movers lists the engines with which nouveau moves buffers according to a log: one for
// each probe.
func Movers(log []lab.LogLine) []string {
	var out []string
	for _, l := range log {
		if _, rest, ok := strings.Cut(l.Text, "MM: using "); ok {
			name, _, _ := strings.Cut(rest, " ")
			out = append(out, name)
		}
	}
	return out
}
