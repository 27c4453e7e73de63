package main

import "strings"

// Classes that move bytes.
const (
	classM2MF = 0x9039
	classCE0  = 0x90b5
	classCE1  = 0x90b8
)

// movers are those classes, by the name of an engine in a case of the guest's suites.
var movers = []struct {
	engine string
	class  uint16
	name   string
}{
	{"m2mf", classM2MF, "M2MF"},
	{"ce0", classCE0, "copy engine 0"},
	{"ce1", classCE1, "copy engine 1"},
}

// kernel is what kernels differ in with a whole card.
type kernel struct {
	version string
	// mover is the class that nouveau moves buffers with, and its name in the log.
	mover     uint16
	moverName string
	// known are the lines of level warning or worse that a probe logs, once each.
	known []string
}

// knownError is nouveau's own failure on every Fermi since its channel code was
// reworked: it asks for a privileged copy channel, which its Fermi code cannot
// make, and copies with M2MF instead.
const knownError = "failed to create ce channel, -22"

// knownWarning is DRM's framebuffer emulation, on any card without a display.
const knownWarning = "No compatible format found"

var kernels = []kernel{
	{"6.1", classCE1, "COPY1", nil},
	{"6.12", classM2MF, "M2MF", []string{knownError, knownWarning}},
	{"7.2", classM2MF, "M2MF", []string{knownError, knownWarning}},
}

// kernelOf finds the row of a release such as "6.12.94+deb13-amd64". A user's own
// kernel may have none.
func kernelOf(release string) (kernel, bool) {
	for _, k := range kernels {
		if strings.HasPrefix(release, k.version+".") {
			return k, true
		}
	}
	return kernel{version: release}, false
}
