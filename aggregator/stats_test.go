package aggregator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestUnmappedMemoryBreaksNoRule: a guest whose memory QEMU unmaps, as at its end, has
// entries that name unmapped memory. They count as lost, not as foreign. Entries that the
// guest itself writes then are foreign.
func TestUnmappedMemoryBreaksNoRule(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	g.AttachMemory(cutFile{make([]byte, 1<<16)})
	const tableAt = 0x300000
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: tableAt}}.Encode()
	pte := shadowpt.PTE{Valid: true, Target: shadowpt.SystemCoherent, Addr: 0x1000}.Encode()
	require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, pde), true))
	require.True(t, g.eachRun(tableAt, binary.LittleEndian.AppendUint64(nil, pte), true))
	bindChannel(t, g, 1)
	require.Zero(t, g.stats.ForeignEntries.Load()+g.stats.LostEntries.Load(), "it is the guest's")

	g.DetachMemory()
	g.Unmapped(0, 1<<16)
	require.Equal(t, uint64(1), g.stats.LostEntries.Load())
	require.Zero(t, g.stats.ForeignEntries.Load())

	// Old entries are not examined again; entries that the guest writes are.
	pte ^= 1 << 32
	require.True(t, g.eachRun(tableAt, binary.LittleEndian.AppendUint64(nil, pte), true))
	require.NoError(t, g.SetShadow(shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: shadowpt.ScanIncremental}))
	g.Invalidate(dirAt>>8, 1<<31|gf100.InvalidateAllDirs)
	settle(g)
	require.Equal(t, uint64(1), g.stats.LostEntries.Load())
	require.Equal(t, uint64(1), g.stats.ForeignEntries.Load())
}

// TestDetachBreaksNoRule: when a client disconnects, its memory is unmapped range by range
// and then as a whole, and its channels are closed after that. Entries left in its tables
// by then break no rule.
func TestDetachBreaksNoRule(t *testing.T) {
	for _, c := range []struct {
		scan   shadowpt.Scan
		submit bool // a submission flushes
	}{{shadowpt.ScanIncremental, true}, {shadowpt.ScanFull, true}, {shadowpt.ScanIncremental, false}, {shadowpt.ScanFull, false}} {
		scan := c.scan
		a, _ := newAgg(t, Options{})
		g, _ := addGuest(t, a, "a")
		require.NoError(t, g.SetShadow(shadowpt.Policy{Sync: shadowpt.SyncLazy, Scan: scan}))
		g.AttachMemory(cutFile{make([]byte, 1<<16)})
		const tableAt = 0x300000
		pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: tableAt}}.Encode()
		pte := shadowpt.PTE{Valid: true, Target: shadowpt.SystemCoherent, Addr: 0x1000}.Encode()
		require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, pde), true))
		require.True(t, g.eachRun(tableAt, binary.LittleEndian.AppendUint64(nil, pte), true))
		bindChannel(t, g, 1)
		settle(g)
		g.mu.Lock()
		g.deferred.all = true // as nouveau's last ones are
		g.mu.Unlock()
		require.Zero(t, g.stats.ForeignEntries.Load(), scan)
		g.DetachMemory()
		if c.submit {
			g.Doorbell(1)
		}
		require.NoError(t, g.Reset())
		require.Zero(t, g.stats.ForeignEntries.Load(), scan)
		if c.submit {
			require.NotZero(t, g.stats.LostEntries.Load(), scan)
			continue
		}
		// Deferred invalidates are flushed for the next client at the latest, with its memory.
		g.AttachMemory(cutFile{make([]byte, 1<<16)})
		bindChannel(t, g, 1)
		g.Doorbell(1)
		settle(g)
		g.mu.Lock()
		needsFlush := g.needsFlush(g.channels[1].ch)
		g.mu.Unlock()
		require.False(t, needsFlush, scan)
		require.Zero(t, g.stats.ForeignEntries.Load()+g.stats.LostEntries.Load(), scan)
	}
}
