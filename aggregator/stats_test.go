package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// systemPage gives a guest memory and an entry in its tables that names a page of it.
func systemPage(t tester, g *Guest) (entryAt, entry uint64) {
	t.Helper()
	entryAt, entry = 0x300000, shadowpt.PTE{Valid: true, Target: shadowpt.SystemCoherent, Addr: 0x1000}.Encode()
	mapRAM(t, g, 1<<16)
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: entryAt}}.Encode())
	writeEntry(t, g, entryAt, entry)
	bindChannel(t, g, 1)
	return entryAt, entry
}

// TestUnmappedMemoryBreaksNoRule: when a client unmaps memory, as QEMU does when it ends, entries
// that name it are lost, not foreign. Foreign is what the guest itself writes.
func TestUnmappedMemoryBreaksNoRule(t *testing.T) {
	for _, scan := range []shadowpt.Scan{shadowpt.ScanIncremental, shadowpt.ScanFull} {
		a, _ := newAgg(t, Options{})
		g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: scan}})
		at, entry := systemPage(t, g)
		require.Zero(t, g.stats.Shadow.ForeignEntries.Load()+g.stats.Shadow.LostEntries.Load(), "it is the guest's")
		g.UnmapDMA(0, 1<<16)
		for _, write := range []bool{false, true} { // entries that stay are not examined again
			if write {
				writeEntry(t, g, at, entry^1<<32)
			}
			gpu(g).Invalidate(0, gf100.InvalidateAllDirs)
			settle(g)
			require.Equal(t, uint64(1), g.stats.Shadow.LostEntries.Load(), scan)
			require.Equal(t, write, g.stats.Shadow.ForeignEntries.Load() == 1, scan)
		}
	}
}

// TestUpdateDuringUnmap: an update that comes after the notice of an unmap and before the memory is gone
// keeps the entries that name it. The update after the unmap removes them.
func TestUpdateDuringUnmap(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: shadowpt.ScanIncremental}})
	systemPage(t, g)
	count := &g.stats.Shadow
	update := func() {
		gpu(g).Invalidate(0, gf100.InvalidateAllDirs)
		settle(g)
	}
	update()
	examined := count.EntriesExamined.Load()
	update()
	require.Equal(t, examined, count.EntriesExamined.Load(), "nothing changed")

	f.Steps.RLock() // a step of the card: other memory is being mapped, and the unmap waits for that
	mapped, unmapped := make(chan error, 1), make(chan struct{})
	go func() { mapped <- g.MapDMA(1<<20, card.Mapping{Mem: make([]byte, 1<<12)}) }()
	require.Eventually(t, func() bool { return g.dma().Covers(1<<20, 1<<12, false) }, patience, tick)
	go func() { g.UnmapDMA(0, 1<<16); close(unmapped) }()
	require.Eventually(t, func() bool { update(); return count.EntriesExamined.Load() > examined }, patience, tick, "the first notice")
	require.True(t, g.dma().Covers(0, 1<<16, false))
	require.Zero(t, count.LostEntries.Load())
	f.Steps.RUnlock()
	require.NoError(t, <-mapped)
	<-unmapped
	update()
	require.EqualValues(t, 1, count.LostEntries.Load())
}
