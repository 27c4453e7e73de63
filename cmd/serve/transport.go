package serve

import (
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Make makes a transport of a device.
type Make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)

// Names of the transports.
const (
	TransportNative  = "native"
	TransportLibrary = "libvfio-user"
)

// Native makes the server of package vfiouser.
func Native(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
	return vfiouser.NewServer(d, o)
}

// TransportNamed returns how a transport is made, and what it lacks that the native
// one has. It fails for a transport that is not built into this program.
func TransportNamed(name string) (Make, []string, error) {
	switch {
	case name != TransportLibrary:
		return Native, nil, nil
	case !libvfiouser.Built:
		return nil, nil, libvfiouser.ErrNotBuilt
	}
	return libvfiouser.New, libvfiouser.Lacks(), nil
}
