package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// knownDriverLine is nouveau's own failure on every Fermi since the rework of
// its channel code: it asks for a privileged copy channel, which its Fermi code
// cannot make, and copies with M2MF instead.
const knownDriverLine = "failed to create ce channel, -22"

func TestProbe(t *testing.T) {
	for _, kernel := range lab.Kernels {
		t.Run(kernel, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			s := start(t, ctx, stand.Config{Machine: lab.Config{Kernel: kernel}})
			s.modprobe(ctx)
			s.requireNodes(ctx)
			s.requireCleanLog(ctx)
		})
	}
}

// bed is a Stand in a test.
type bed struct {
	*stand.Stand
	t *testing.T
}

func start(t *testing.T, ctx context.Context, cfg stand.Config) *bed {
	t.Helper()
	s, err := stand.Start(ctx, cfg)
	require.NoError(t, err)
	b := &bed{s, t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.VM.Diagnosis())
		}
		require.NoError(t, s.Close())
	})
	return b
}

// call asks the guest, and fails the test unless it says that all held.
func (b *bed) call(ctx context.Context, cmd string, args, result any) {
	b.t.Helper()
	require.NoError(b.t, b.VM.Agent().Call(ctx, cmd, args, result))
}

func (b *bed) modprobe(ctx context.Context, options ...string) {
	b.t.Helper()
	b.call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau", Options: options}, nil)
}

func (b *bed) requireNodes(ctx context.Context) {
	b.t.Helper()
	var dri proto.DRIResult
	b.call(ctx, proto.CmdDRI, nil, &dri)
	var names []string
	for _, n := range dri.Nodes {
		names = append(names, filepath.Base(n.Path))
	}
	require.Contains(b.t, names, "card0")
	require.Contains(b.t, names, "renderD128")
}

// requireCleanLog allows nouveau no warning at all on 6.1, and exactly the one
// known line on the kernels that have it.
func (b *bed) requireCleanLog(ctx context.Context) {
	b.t.Helper()
	lines, err := b.VM.Warnings(ctx, "nouveau")
	require.NoError(b.t, err)
	var rest []string
	known := 0
	for _, l := range lines {
		if strings.Contains(l.Text, knownDriverLine) {
			known++
			continue
		}
		rest = append(rest, l.String())
	}
	require.Empty(b.t, rest)
	if strings.HasPrefix(b.VM.Kernel(), "6.1.") {
		require.Zero(b.t, known)
	} else {
		require.Equal(b.t, 1, known)
	}
}
