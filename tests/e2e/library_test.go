//go:build libvfiouser

package e2e

import (
	"testing"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestLibrary runs stock kernels on the card with libvfio-user's server. The gate has the suite of
// package conformance instead.
func TestLibrary(t *testing.T) {
	scale.ReleaseOnly(t)
	for _, k := range kernels {
		t.Run(k.Version, func(t *testing.T) {
			b := start(t, testserver.Config{Transport: libvfiouser.New, Machine: lab.Config{Kernel: k.Version, CPUs: k.CPUs}})
			b.modprobe()
			b.copies(proto.CmdM2MF)
			b.copies(proto.CmdCE)
			b.fences(50)
			b.requireInterrupts(k)
		})
	}
}
