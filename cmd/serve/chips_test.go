package serve

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestChips: GPUs of different chips share a card, each with its registers, its PCI function and its
// windows, and the register table has those of both.
func TestChips(t *testing.T) {
	o := config.Default()
	dir := t.TempDir()
	for _, gpu := range []string{"name=a,vram=64MiB", "name=b,vram=4GiB,chip=gh100,model=h200,bar1=64MiB"} {
		require.NoError(t, o.AddGPU("--gpu", gpu+",socket="+filepath.Join(dir, gpu[5:6])))
	}
	o.Card.VRAM = 6 << 30
	require.NoError(t, o.Check())
	card, err := soft.New(soft.Config{VRAM: uint64(o.Card.VRAM)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, card.Close()) })
	s := share(t, card, Native, vfiouser.Options{}, aggregator.Options{})
	for i, want := range []struct {
		chip              string
		boot0, id         uint32
		vram, bar1, bar3  uint64
		register, another string
	}{
		{"gf100", 0x0c0000a3, 0x06d810de, 64 << 20, 128 << 20, 64 << 20, "NV_PFIFO_RUNLIST", "NV_VIRTUAL_FUNCTION_DOORBELL"},
		{"gh100", 0x180000a1, 0x233510de, 4<<30 + 16<<20, 64 << 20, 32 << 20, "NV_VIRTUAL_FUNCTION_DOORBELL", "NV_PFIFO_RUNLIST"},
	} {
		cfg, err := GPUOf(&o.GPUs[i])
		require.NoError(t, err)
		e, err := s.Add(cfg)
		require.NoError(t, err)
		h := dial(t, e)
		require.Equal(t, want.boot0, read32(t, h, vfiouser.RegionBAR0, 0))
		require.Equal(t, want.id, read32(t, h, vfiouser.RegionConfig, 0))
		bar := e.Virtual.GPU.BARSize
		require.Equal(t, []uint64{want.bar1, want.bar3}, []uint64{bar(vfiouser.RegionBAR1), bar(vfiouser.RegionBAR3)})
		st := e.Status()
		require.Equal(t, []any{want.chip, want.vram}, []any{st.Chip, st.VRAM})
		table, err := Registers(e)
		require.NoError(t, err)
		has := func(register string) bool {
			return slices.ContainsFunc(table.Rows, func(r api.Register) bool { return r.Register == register && r.Chip == want.chip })
		}
		require.True(t, has(want.register))
		require.False(t, has(want.another))
		require.NoError(t, h.Reset())
		leave(t, e, h)
		require.NoError(t, e.Virtual.Dirty())
	}
	table, err := Registers(s.GPUs()...)
	require.NoError(t, err)
	all, err := Registers()
	require.NoError(t, err)
	require.Len(t, table.Rows, len(all.Rows))
	i := slices.IndexFunc(table.Rows, func(r api.Register) bool { return r.Chip == "gh100" && r.Register == "NV_PMC_BOOT_0" })
	require.EqualValues(t, 1, table.Rows[i].Reads)
}

// TestWholeCardOfAnotherChip: one guest can have the whole card only as what the card is. A GPU that the
// chip cannot be is refused before anything starts.
func TestWholeCardOfAnotherChip(t *testing.T) {
	o := config.Default()
	require.NoError(t, o.Parse("f.yaml", []byte("card: {chip: gh100}\n")))
	_, err := NewPlan(o, true, nil)
	require.ErrorContains(t, err, "f.yaml:1:14: card.chip: gh100: only a virtual GPU has this chip")
	require.NoError(t, o.Parse("g.yaml", []byte("card: {vram: 6GiB, tpcs: [33]}\ngpus:\n- {name: a, socket: a.sock, vram: 4GiB}\n")))
	require.NoError(t, o.Check())
	_, err = gh100Of(&config.Face{TPCs: config.Counts{1}}, 1<<30, func(key string) string { return key })
	require.ErrorContains(t, err, "VRAM")
	require.NotContains(t, err.Error(), "tpcs")
	_, err = NewPlan(o, false, nil)
	require.ErrorContains(t, err, "tpcs: 33: gsp: clusters of [33] units")
}
