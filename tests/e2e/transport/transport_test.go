// Package transport tests what QEMU makes of each transport that serves a device:
// Umbra's own server and libvfio-user. Tests of the library need a build with it, as
// make test-libvfio-user makes.
package transport

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/nouveau"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// boot boots a machine on a card. Both end with the test.
func boot(t *testing.T, cfg testserver.Config) (s *testserver.PassThrough, call func(cmd string, args, result any)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Minute)
	t.Cleanup(cancel)
	s, err := testserver.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.VM.Diagnosis())
		}
		require.NoError(t, s.Close())
	})
	t.Attr("kernel", fmt.Sprintf("%s under %s", s.VM.Kernel(), s.VM.Accel().Name))
	return s, func(cmd string, args, result any) {
		t.Helper()
		require.NoError(t, s.VM.Agent().Call(ctx, cmd, args, result), cmd)
	}
}

// TestLibrary runs stock kernels on the card with libvfio-user's server: copies,
// fences and interrupts must be right. The gate runs one kernel.
func TestLibrary(t *testing.T) {
	if !libvfiouser.Built {
		t.Skip(libvfiouser.ErrNotBuilt)
	}
	labtest.Need(t)
	for _, version := range scale.Of([]string{"6.12"}, lab.Kernels) {
		t.Run(version, func(t *testing.T) {
			k, _ := nouveau.Of(version)
			s, call := boot(t, testserver.Config{Transport: libvfiouser.New, Machine: lab.Config{Kernel: version, CPUs: k.CPUs}})
			call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
			// The guest program fails a command unless all of its data is right.
			call(proto.CmdM2MF, proto.CopyArgs{Seed: 1}, nil)
			call(proto.CmdCE, proto.CopyArgs{Seed: 1}, nil)
			call(proto.CmdFences, proto.FencesArgs{Count: 50}, nil)
			var irqs proto.InterruptsResult
			call(proto.CmdInterrupts, nil, &irqs)
			require.NotZero(t, irqs.Count)
			require.NotZero(t, s.Card.Stats().Interrupts.Load())
		})
	}
}
