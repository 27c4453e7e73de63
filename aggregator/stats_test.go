package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"testing"

	"github.com/stretchr/testify/require"
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
			g.Invalidate(0, gf100.InvalidateAllDirs)
			settle(g)
			require.Equal(t, uint64(1), g.stats.Shadow.LostEntries.Load(), scan)
			require.Equal(t, write, g.stats.Shadow.ForeignEntries.Load() == 1, scan)
		}
	}
}

// TestDetachBreaksNoRule: when a client leaves, its memory goes before its channels. What stands
// in its tables by then breaks no rule.
func TestDetachBreaksNoRule(t *testing.T) {
	for _, c := range []struct {
		scan   shadowpt.Scan
		submit bool // a submission flushes
	}{{shadowpt.ScanIncremental, true}, {shadowpt.ScanFull, true}, {shadowpt.ScanIncremental, false}, {shadowpt.ScanFull, false}} {
		a, _ := newAgg(t, Options{})
		g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncLazy, Scan: c.scan}})
		systemPage(t, g)
		g.shadows.Defer(shadow.All, []shadow.Key{{Dir: dirAt}}) // as nouveau's last ones are
		g.DetachMemory()
		if c.submit {
			g.Doorbell(1)
		}
		require.NoError(t, g.Reset())
		require.Zero(t, g.stats.Shadow.ForeignEntries.Load(), c)
		require.Equal(t, c.submit, g.stats.Shadow.LostEntries.Load() > 0, c)
		if c.submit {
			continue
		}
		// Deferred invalidates are flushed for the next client at the latest, with its memory.
		mapRAM(t, g, 1<<16)
		bindChannel(t, g, 1)
		g.Doorbell(1)
		settle(g)
		require.False(t, g.shadows.NeedsFlush(g.cardChannel(1).Key()), c)
		require.Zero(t, g.stats.Shadow.ForeignEntries.Load()+g.stats.Shadow.LostEntries.Load(), c)
	}
}
