// Package transport boots the three kernels on the software card behind
// libvfio-user, and has each verify what the card's engines move. Package e2e
// does the same, and more, behind our own server. And it has a guest measure both.
package transport

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestKernels: a stock kernel's own nouveau drives the card; copies, semaphores,
// fences and interrupts are right, told by the guest and by the card's counters.
func TestKernels(t *testing.T) {
	if !libvfiouser.Built {
		t.Skip(libvfiouser.ErrNotBuilt)
	}
	labtest.Need(t)
	for _, version := range lab.Kernels {
		t.Run(version, func(t *testing.T) { boot(t, version) })
	}
}

func boot(t *testing.T, version string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	machine := lab.Config{Kernel: version}
	if version == "6.1" {
		machine.CPUs = 1 // its nouveau loses waits for fences on more; see package e2e
	}
	s, err := stand.Start(ctx, stand.Config{Transport: libvfiouser.New, Machine: machine})
	require.NoError(t, err)
	defer func() {
		if t.Failed() {
			t.Log(s.VM.Diagnosis())
		}
		require.NoError(t, s.Close())
	}()
	ready, err := s.VM.Agent().Ready(ctx, 1)
	require.NoError(t, err)
	t.Attr("kernel", fmt.Sprintf("%s under %s", ready.Kernel, s.VM.Accel().Name))
	call := func(cmd string, args, result any) {
		t.Helper()
		call, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		require.NoError(t, s.VM.Agent().Call(call, cmd, args, result), cmd)
	}
	call(proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
	for _, cmd := range []string{proto.CmdM2MF, proto.CmdCE} {
		var r proto.CopyResult
		call(cmd, proto.CopyArgs{Quick: true, Seed: 1}, &r)
		require.Zero(t, r.Failed)
		require.NotEmpty(t, r.Cases)
		for _, c := range r.Cases {
			require.Equal(t, c.WantCRC, c.CRC, c.Name)
		}
		t.Logf("%s: %d cases, %d bytes right", cmd, len(r.Cases), r.Bytes)
	}
	var semaphores proto.SemaphoresResult
	call(proto.CmdSemaphores, proto.SemaphoresArgs{Seed: 2}, &semaphores)
	require.NotEmpty(t, semaphores.Checks)
	for _, c := range semaphores.Checks {
		require.True(t, c.OK || c.Skipped != "", "%s: %s", c.Name, c.Error)
	}
	var fences proto.FencesResult
	call(proto.CmdFences, proto.FencesArgs{Count: 50}, &fences)
	require.Equal(t, 50, fences.Waits)
	require.Zero(t, fences.Wrong+fences.CrossWrong)
	var irqs proto.InterruptsResult
	call(proto.CmdInterrupts, nil, &irqs)
	require.NotZero(t, irqs.Count)
	require.NotZero(t, s.Card.Stats().Interrupts.Load())
	t.Logf("%d semaphore checks, %d fences, %d interrupts taken", len(semaphores.Checks), fences.Waits, irqs.Count)
}
