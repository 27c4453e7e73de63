package setup

import (
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Echo is the set-up of the scenario transport that has no server: a loop of two blocking system
// calls, which is the floor for any server.
const Echo = "echo"

// Transports returns the set-ups of the scenario transport: a whole card behind each transport of
// this build.
func Transports() []Row {
	rows := []Row{{Name: serve.TransportNative, Whole: true, Map: "none", Transport: serve.TransportNative}}
	if libvfiouser.Built {
		rows = append(rows, Row{Name: serve.TransportLibrary, Whole: true, Map: "none", Transport: serve.TransportLibrary})
	}
	return rows
}

// EchoRow is the set-up Echo. Its bed is not used.
func EchoRow() Row { return Row{Name: Echo, Whole: true, Map: "none"} }
