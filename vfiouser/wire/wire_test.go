package wire_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// encoded compares a structure with bytes written by hand from the specification's tables, and
// decodes them again.
func encoded[T wire.Fixed](t *testing.T, v T, want string, size int) {
	t.Helper()
	got := wire.Append(nil, v)
	require.Equal(t, strings.ReplaceAll(want, " ", ""), hex.EncodeToString(got))
	require.Len(t, got, size)
	require.Equal(t, v, wire.Parse[T](got))
	put := make([]byte, size)
	wire.Put(put, v)
	require.Equal(t, got, put)
}

// TestEncoding gives every field a different value, so that no two can be confused.
func TestEncoding(t *testing.T) {
	encoded(t, wire.Header{ID: 0x0102, Command: 9, Size: 0x03040506, Flags: 0x21, Errno: 22},
		"0201 0900 06050403 21000000 16000000", wire.HeaderSize)
	encoded(t, wire.DMAMapRequest{Argsz: 32, Flags: 3, Offset: 0x1000, Addr: 0x80000000, Size: 0x200000},
		"20000000 03000000 0010000000000000 0000008000000000 0000200000000000", wire.DMAMapSize)
	encoded(t, wire.DMAUnmapRequest{Argsz: 24, Flags: 2, Addr: 0x80000000, Size: 0x200000},
		"18000000 02000000 0000008000000000 0000200000000000", wire.DMAUnmapSize)
	encoded(t, wire.DeviceInfo{Argsz: 16, Flags: 3, NumRegions: 9, NumIRQs: 5}, "10000000 03000000 09000000 05000000", wire.DeviceInfoSize)
	encoded(t, wire.RegionInfo{Argsz: 80, Flags: 15, Index: 1, CapOffset: 32, Size: 1 << 24, Offset: 0x4000},
		"50000000 0f000000 01000000 20000000 0000000100000000 0040000000000000", wire.RegionInfoSize)
	encoded(t, wire.RegionIO{Argsz: 64, Flags: 1, Index: 2, Count: 3}, "40000000 01000000 02000000 03000000", wire.RegionIOSize)
	encoded(t, wire.IRQInfo{Argsz: 16, Flags: 1, Index: 2, Count: 32}, "10000000 01000000 02000000 20000000", wire.IRQInfoSize)
	encoded(t, wire.IRQSet{Argsz: 20, Flags: 0x24, Index: 2, Start: 3, Count: 1}, "14000000 24000000 02000000 03000000 01000000", wire.IRQSetSize)
	encoded(t, wire.RegionAccess{Offset: 0x1122334455667788, Region: 7, Count: 4}, "8877665544332211 07000000 04000000", wire.RegionAccessSize)
	encoded(t, wire.DMAAccess{Addr: 0x1122334455667788, Count: 1024}, "8877665544332211 0004000000000000", wire.DMAAccessSize)
	encoded(t, wire.Feature{Argsz: 16, Flags: wire.FeatureGet | wire.FeatureMigDeviceState}, "10000000 02000100", wire.FeatureSize)
	encoded(t, wire.MigData{Argsz: 4104, Size: 4096}, "08100000 00100000", wire.MigDataSize)
}

func TestSparse(t *testing.T) {
	b := wire.AppendSparse(nil, []wire.Area{{Offset: 0x1000, Size: 0x2000}})
	require.Equal(t, "01000100000000000100000000000000"+"00100000000000000020000000000000", hex.EncodeToString(b))
	require.Len(t, b, wire.SparseSize(1))
	areas, n, err := wire.ParseSparse(append(make([]byte, wire.RegionInfoSize), b...), wire.RegionInfoSize)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []wire.Area{{Offset: 0x1000, Size: 0x2000}}, areas)
}

func TestCommandString(t *testing.T) {
	require.Equal(t, "DEVICE_GET_REGION_IO_FDS", wire.Command(6).String())
	require.Equal(t, "command 0", wire.Command(0).String())
	require.Equal(t, "command 19", wire.Command(19).String())
	require.Equal(t, "command 65535", wire.Command(65535).String())
}
