package soft

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio"
)

func TestRebuild(t *testing.T) {
	c, err := New(Config{VRAM: MinVRAM})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	read := func(off uint64) uint32 {
		var b [4]byte
		c.ReadBAR(BAR0, off, b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	const boot0, gpcs = 0x0, 0x409604
	require.EqualValues(t, 4, read(gpcs)&0x1f)

	require.NoError(t, c.Rebuild(func(cfg *Config) {
		cfg.TPCs = []int{4, 4}
		cfg.Ablate = func(s *mmio.Space) error { return s.MakePlain("NV_PMC_BOOT_0", 7) }
	}))
	require.EqualValues(t, 2, read(gpcs)&0x1f, "another board")
	require.EqualValues(t, 7, read(boot0), "the ablation holds")

	require.Error(t, c.Rebuild(func(cfg *Config) { cfg.VRAM *= 2 }))
	require.Error(t, c.Rebuild(func(cfg *Config) { cfg.TPCs = []int{100} }))
	require.EqualValues(t, 2, read(gpcs)&0x1f, "a board that cannot be built leaves the one there was")
	require.EqualValues(t, 7, read(boot0))

	require.NoError(t, c.Rebuild(func(cfg *Config) { cfg.Ablate = nil }))
	require.EqualValues(t, 0x0c0000a3, read(boot0), "the ablation has ended")
}

// What the card knows is plain data: no pointer to a part of the card, no lock, and nothing that
// an encoder would leave out.
func TestStateIsPlain(t *testing.T) {
	var plain func(reflect.Type, string)
	plain = func(v reflect.Type, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Field(i)
				require.True(t, f.IsExported(), "%s.%s", path, f.Name)
				plain(f.Type, path+"."+f.Name)
			}
		case reflect.Array, reflect.Slice, reflect.Pointer:
			plain(v.Elem(), path)
		default:
			require.True(t, v.Kind() <= reflect.Float64, "%s is a %v", path, v)
		}
	}
	for _, state := range []any{ChannelState{}, FIFOState{}, Contexts{}, BARState{}} {
		plain(reflect.TypeOf(state), reflect.TypeOf(state).Name())
	}
}
