package wire_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// TestEncoding compares each structure with bytes written by hand from the specification's
// tables. Every field has a different value, so that no two can be confused.
func TestEncoding(t *testing.T) {
	h := make([]byte, wire.HeaderSize)
	wire.Header{ID: 0x0102, Command: 9, Size: 0x03040506, Flags: 0x21, Errno: 22}.Put(h)
	a := make([]byte, wire.RegionAccessSize)
	wire.RegionAccess{Offset: 0x1122334455667788, Region: 7, Count: 4}.Put(a)
	tests := []struct {
		name, want string
		got        []byte
		size       int
		again      func(b []byte) []byte // decodes and encodes
	}{
		{
			"header", "0201 0900 06050403 21000000 16000000", h, wire.HeaderSize,
			func(b []byte) []byte { o := make([]byte, 16); wire.ParseHeader(b).Put(o); return o },
		},
		{
			"DMA_MAP", "20000000 03000000 0010000000000000 0000008000000000 0000200000000000",
			wire.DMAMapRequest{Argsz: 32, Flags: 3, Offset: 0x1000, Addr: 0x80000000, Size: 0x200000}.Append(nil), wire.DMAMapSize,
			func(b []byte) []byte { return wire.ParseDMAMap(b).Append(nil) },
		},
		{
			"DMA_UNMAP", "18000000 02000000 0000008000000000 0000200000000000",
			wire.DMAUnmapRequest{Argsz: 24, Flags: 2, Addr: 0x80000000, Size: 0x200000}.Append(nil), wire.DMAUnmapSize,
			func(b []byte) []byte { return wire.ParseDMAUnmap(b).Append(nil) },
		},
		{
			"DEVICE_GET_INFO", "10000000 03000000 09000000 05000000",
			wire.DeviceInfo{Argsz: 16, Flags: 3, NumRegions: 9, NumIRQs: 5}.Append(nil), wire.DeviceInfoSize,
			func(b []byte) []byte { return wire.ParseDeviceInfo(b).Append(nil) },
		},
		{
			"DEVICE_GET_REGION_INFO", "50000000 0f000000 01000000 20000000 0000000100000000 0040000000000000",
			wire.RegionInfo{Argsz: 80, Flags: 15, Index: 1, CapOffset: 32, Size: 1 << 24, Offset: 0x4000}.Append(nil), wire.RegionInfoSize,
			func(b []byte) []byte { return wire.ParseRegionInfo(b).Append(nil) },
		},
		{
			"GET_REGION_IO_FDS", "40000000 01000000 02000000 03000000",
			wire.RegionIO{Argsz: 64, Flags: 1, Index: 2, Count: 3}.Append(nil), wire.RegionIOSize,
			func(b []byte) []byte { return wire.ParseRegionIO(b).Append(nil) },
		},
		{
			"sub-region", "1000000000000000 0400000000000000 02000000 01000000 05000000 00000000 8877665544332211",
			wire.SubRegion{Offset: 16, Size: 4, FDIndex: 2, Type: 1, Flags: 5, DataMatch: 0x1122334455667788}.Append(nil), wire.SubRegionSize,
			func(b []byte) []byte { return wire.ParseSubRegion(b).Append(nil) },
		},
		{
			"sub-region with shadow", "1000000000000000 0400000000000000 02000000 02000000 05000000 03000000 8000000000000000 8877665544332211",
			wire.SubRegion{Offset: 16, Size: 4, FDIndex: 2, Type: 2, Flags: 5, ShadowFD: 3, ShadowOffset: 0x80, DataMatch: 0x1122334455667788}.AppendShadow(nil), wire.SubRegionShadowSize,
			func(b []byte) []byte { return wire.ParseSubRegion(b).AppendShadow(nil) },
		},
		{
			"DEVICE_GET_IRQ_INFO", "10000000 01000000 02000000 20000000",
			wire.IRQInfo{Argsz: 16, Flags: 1, Index: 2, Count: 32}.Append(nil), wire.IRQInfoSize,
			func(b []byte) []byte { return wire.ParseIRQInfo(b).Append(nil) },
		},
		{
			"SET_IRQS", "14000000 24000000 02000000 03000000 01000000",
			wire.IRQSet{Argsz: 20, Flags: 0x24, Index: 2, Start: 3, Count: 1}.Append(nil), wire.IRQSetSize,
			func(b []byte) []byte { return wire.ParseIRQSet(b).Append(nil) },
		},
		{
			"REGION_READ", "8877665544332211 07000000 04000000", a, wire.RegionAccessSize,
			func(b []byte) []byte { return wire.ParseRegionAccess(b).Append(nil) },
		},
		{
			"DMA_READ", "8877665544332211 0004000000000000",
			wire.DMAAccess{Addr: 0x1122334455667788, Count: 1024}.Append(nil), wire.DMAAccessSize,
			func(b []byte) []byte { return wire.ParseDMAAccess(b).Append(nil) },
		},
		{
			"DEVICE_FEATURE", "10000000 02000100",
			wire.Feature{Argsz: 16, Flags: wire.FeatureGet | wire.FeatureMigDeviceState}.Append(nil), wire.FeatureSize,
			func(b []byte) []byte { return wire.ParseFeature(b).Append(nil) },
		},
		{
			"MIG_DATA_READ", "08100000 00100000",
			wire.MigData{Argsz: 4104, Size: 4096}.Append(nil), wire.MigDataSize,
			func(b []byte) []byte { return wire.ParseMigData(b).Append(nil) },
		},
	}
	for _, tt := range tests {
		want := strings.ReplaceAll(tt.want, " ", "")
		require.Equal(t, want, hex.EncodeToString(tt.got), tt.name)
		require.Len(t, tt.got, tt.size, tt.name)
		require.Equal(t, want, hex.EncodeToString(tt.again(tt.got)), tt.name)
	}
}

func TestSparse(t *testing.T) {
	b := wire.AppendSparse(nil, []wire.Area{{Offset: 0x1000, Size: 0x2000}})
	require.Equal(t, "01000100000000000100000000000000"+"00100000000000000020000000000000", hex.EncodeToString(b))
	require.Len(t, b, wire.SparseSize(1))
}

func TestCommandString(t *testing.T) {
	require.Equal(t, "DEVICE_GET_REGION_IO_FDS", wire.Command(6).String())
	require.Equal(t, "command 0", wire.Command(0).String())
	require.Equal(t, "command 19", wire.Command(19).String())
	require.Equal(t, "command 65535", wire.Command(65535).String())
}
