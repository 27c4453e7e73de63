package gf100_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestOnlyTranslatedRowsReachTheCard reads and writes dwords of BAR0, in the release suite every one: only rows with
// that policy make calls to the card, and each such row is bound.
func TestOnlyTranslatedRowsReachTheCard(t *testing.T) {
	v, c, _ := newGPU(t)
	translated := translatedOffsets(v)
	for off := uint64(0); off < v.BARSize(devmodel.BAR0); off += scale.Of[uint64](4*67, 4) { // prime to the sizes of blocks
		c.calls = nil
		var b [4]byte
		v.ReadBAR(devmodel.BAR0, off, b[:])
		v.WriteBAR(devmodel.BAR0, off, b[:])
		if len(c.calls) > 0 && !translated[uint32(off)] {
			t.Fatalf("%s at %#06x calls %v", v.Registers().NameOf(uint32(off)), off, c.calls)
		}
	}
}

// TestTranslatedRowsReachTheCard is the other direction: the table claims no
// translation that does not happen. Rows that are only read by another row's
// effect are named.
func TestTranslatedRowsReachTheCard(t *testing.T) {
	usedByOthers := map[string]bool{
		"NV_PFIFO_RUNLIST_BASE":         true, // by NV_PFIFO_RUNLIST
		"NV_PFB_PRI_MMU_INVALIDATE_PDB": true, // by NV_PFB_PRI_MMU_INVALIDATE
		"NV_PBUS_BAR0_WINDOW":           true, // by PRAMIN
		"NV_PFIFO_USERD_BASE":           true, // by BAR1's doorbells
		"NV_PPBDMA_INTR_0":              true, // only while an error is shown
		"NV_PGRAPH_FIFO_CONTROL":        true, // only while a refused method is shown
		"NV_PMC_ENABLE":                 true, // only when a bit falls
		"NV_PFIFO_MMU_FAULT_TRIGGER":    true, // only with its bit
	}
	v, c, _ := newGPU(t)
	for _, row := range v.Registers().Rows() {
		if row.Reg.Policy != mmio.Translate || usedByOthers[row.Reg.Name] {
			continue
		}
		c.calls = nil
		var b [4]byte
		v.ReadBAR(devmodel.BAR0, uint64(row.Reg.Offset), b[:])
		v.WriteBAR(devmodel.BAR0, uint64(row.Reg.Offset), b[:])
		require.NotEmpty(t, c.calls, row.Reg.Name)
	}
}

func translatedOffsets(v *gf100.VGPU) map[uint32]bool {
	at := map[uint32]bool{}
	for _, row := range v.Registers().Rows() {
		if row.Reg.Policy != mmio.Translate {
			continue
		}
		if row.Aperture != 0 {
			for off := uint32(0); off < row.Aperture; off += 4 {
				at[row.Reg.Offset+off] = true
			}
			continue
		}
		for i := range row.Instances {
			at[row.Reg.InstanceOffset(i)] = true
		}
	}
	return at
}

// TestRefusedRowsKeepTheirValue writes rows that a guest may not change.
func TestRefusedRowsKeepTheirValue(t *testing.T) {
	v, _, _ := newGPU(t)
	n := 0
	for _, row := range v.Registers().Rows() {
		if row.Reg.Policy != mmio.Refuse {
			continue
		}
		n++
		read := func() uint32 {
			var b [4]byte
			v.ReadBAR(devmodel.BAR0, uint64(row.Reg.Offset), b[:])
			return binary.LittleEndian.Uint32(b[:])
		}
		before := read()
		v.WriteBAR(devmodel.BAR0, uint64(row.Reg.Offset), []byte{0x5a, 0xa5, 0x5a, 0xa5})
		require.Equal(t, before, read(), row.Reg.Name)
	}
	require.NotZero(t, n)
}
