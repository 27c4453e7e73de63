package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// TestAccess: a file stands for BAR0.
func TestAccess(t *testing.T) {
	root := t.TempDir()
	device := filepath.Join(root, pciDevices, "0000:00:01.0")
	require.NoError(t, os.MkdirAll(device, 0o755))
	bar := filepath.Join(device, "resource0")
	require.NoError(t, os.WriteFile(bar, nil, 0o644))
	require.NoError(t, os.Truncate(bar, regSpace))
	node := filepath.Join(root, "sys/class/drm/card7")
	require.NoError(t, os.MkdirAll(node, 0o755))
	require.NoError(t, os.Symlink(device, filepath.Join(node, "device")))

	s := &System{Root: root}
	one, two := uint32(1), uint32(2)
	r, err := s.Access(proto.RegistersArgs{Node: "/dev/dri/card7", Accesses: []proto.RegisterAccess{
		{Offset: 0x1700, Write: &one}, {Offset: 0x1700}, {Offset: 0x1700, Write: &two}, {Offset: 0x1700}, {Offset: regSpace - 4},
	}})
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 0}, r.Values)

	for _, off := range []uint32{2, regSpace} {
		_, err := s.Access(proto.RegistersArgs{Node: "/dev/dri/card7", Accesses: []proto.RegisterAccess{{Offset: 0x1700, Write: &one}, {Offset: off}}})
		require.ErrorContains(t, err, "want a multiple of 4")
	}
	r, err = s.Access(proto.RegistersArgs{Node: "/dev/dri/card7", Accesses: []proto.RegisterAccess{{Offset: 0x1700}}})
	require.NoError(t, err)
	require.Equal(t, []uint32{2}, r.Values, "of a wrong list nothing is done")
}
