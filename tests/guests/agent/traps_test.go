package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// TestTraps: on a file for a BAR, what is written is there, and what is counted was done.
func TestTraps(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, pciDevices, "0000:00:02.0")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "enable"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "resource0"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "resource0"), regSpace))
	s := &System{Root: root}
	a := proto.TrapsArgs{Address: "0000:00:02.0", Offset: 0x14fc, Write: true, Count: 100, Burst: 32}
	r, err := s.Traps(a)
	require.NoError(t, err)
	require.Equal(t, 128, r.Count, "whole bursts")
	require.Equal(t, 4+2, r.Reads)
	require.EqualValues(t, 128, r.Last)
	require.Positive(t, r.NS)
	enabled, err := os.ReadFile(filepath.Join(dir, "enable"))
	require.NoError(t, err)
	require.Equal(t, "1", string(enabled))

	a.Write, a.Burst = false, 0
	r, err = s.Traps(a)
	require.NoError(t, err)
	require.Equal(t, 100, r.Count)
	require.Equal(t, 2, r.Reads)
	require.EqualValues(t, 128, r.Last, "reads change nothing")

	for _, bad := range []proto.TrapsArgs{{Offset: 2, Count: 1}, {Offset: regSpace, Count: 1}, {Count: 0}, {Count: 1, Burst: -1}, {Address: "none", Count: 1}} {
		_, err := s.Traps(bad)
		require.Error(t, err)
	}
}
