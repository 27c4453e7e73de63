package aggregator

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestPoliciesEqualFullRebuilds: under every policy, and while policies change,
// the work that the card gets sees the guest's tables as a full rebuild would make
// them.
func TestPoliciesEqualFullRebuilds(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			draws, doorbells, compared := 0, 0, 0
			rapid.Check(t, func(t *rapid.T) {
				d := newRandomGuest(t, policy)
				defer d.end()
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					d.step()
				}
				d.invalidate(0) // for any draw, something is compared
				d.submit(0)
				draws++
				doorbells, compared = doorbells+d.doorbells, compared+d.compared
			})
			t.Log(doorbells, "submissions,", compared, "of them after an invalidate")
			require.GreaterOrEqual(t, compared, draws, "a submission right after an invalidate was not compared")
		})
	}
}

// TestLazyScans: many invalidates and few submissions cost scans by the
// submissions, and no guest waits for its invalidate.
func TestLazyScans(t *testing.T) {
	for _, scan := range []shadowpt.Scan{shadowpt.ScanFull, shadowpt.ScanIncremental} {
		a, f := newAgg(t, Options{})
		p := shadowpt.Policy{}
		p.Sync, p.Scan = shadowpt.SyncLazy, scan
		g := addGuestWith(t, a, GuestConfig{Shadow: p})
		bindChannel(t, g, 1)
		const invalidates, submissions = 1000, 10
		before := g.stats.Shadow.Scans.Load()
		for i := range invalidates {
			writeEntry(t, g, dirAt+uint64(i)*8, uint64(i)<<2&12)
			invalidate(g)
			require.True(t, g.Invalidated())
			if i%(invalidates/submissions) == 0 {
				n := len(f.Doorbells())
				g.Doorbell(1)
				require.Eventually(t, func() bool { return len(f.Doorbells()) > n }, patience, tick/10)
				settleRound(g)
			}
		}
		require.LessOrEqual(t, g.stats.Shadow.Scans.Load()-before, uint64(submissions+1))
		require.GreaterOrEqual(t, g.stats.Shadow.LazyInvalidates.Load(), uint64(invalidates))
	}
}

// TestNoScanWithoutSpace: accesses of a guest's client to its memory cause no scan while the guest
// has no address space.
func TestNoScanWithoutSpace(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: shadowpt.ScanIncremental}})
	remap := func() {
		mapRAM(t, g, 1<<20)
		g.UnmapDMA(0, 1<<20)
		g.Invalidate(0, gf100.InvalidateAllDirs)
		settle(g)
	}
	remap()
	require.Zero(t, g.stats.Shadow.Scans.Load())
	bindChannel(t, g, 1)
	scans := g.stats.Shadow.Scans.Load()
	remap()
	require.Greater(t, g.stats.Shadow.Scans.Load(), scans)
}

// TestBusyChannelsAreNotDeferred: an invalidate of a space with work under way is done
// immediately.
func TestBusyChannelsAreNotDeferred(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	ch := g.cardChannel(1)
	for _, busy := range []uint32{gf100.ChannelBusy, gf100.ChannelPending, 0} {
		g.Doorbell(1)
		settleRound(g)
		f.SetChannel(ch.Card().ID(), busy|1)
		require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, []byte{byte(busy >> 22)}))
		scans := g.stats.Shadow.Scans.Load()
		invalidate(g)
		settleRound(g)
		require.Equal(t, busy != 0, g.stats.Shadow.Scans.Load() > scans, "%#x", busy)
	}
	// Deferred invalidates are flushed before anything else lets a channel run, too.
	for name, start := range map[string]func(){
		"enable": func() { g.Enable(1, true) },
		"runlist": func() {
			writeEntry(t, g, listAt, 1)
			g.Runlist(listAt>>12, 0x01f00001)
		},
	} {
		require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, []byte{4}))
		invalidate(g)
		require.True(t, g.Invalidated())
		scans := g.stats.Shadow.Scans.Load()
		start()
		settleRound(g)
		require.Greater(t, g.stats.Shadow.Scans.Load(), scans, name)
		f.SetChannel(ch.Card().ID(), 1)
	}
}

// TestTableStormIsBounded: a guest whose large tables are scanned again and again gets its
// rate, a burst, and the round that exceeded it; unmaps do not wait for that.
func TestTableStormIsBounded(t *testing.T) {
	const rate = 1 << 10 // so slow that an excess over the burst waits for minutes
	a, _ := newAgg(t, Options{TableRate: rate})
	p := shadowpt.Policy{}
	p.Sync, p.Scan = shadowpt.SyncFlush, shadowpt.ScanFull
	g := addGuestWith(t, a, GuestConfig{Shadow: p})
	bindChannel(t, g, 1)
	entries := make([]byte, shadowpt.SmallTableSize/2)
	for i := 0; i < len(entries); i += 8 {
		binary.LittleEndian.PutUint64(entries[i:], shadowpt.PTE{Valid: true}.Encode())
	}
	require.True(t, g.mem.Write(shadowpt.VRAM, 0x200000, entries))
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: 0x200000}}.Encode())
	burst := 4 * g.limits.Tables
	begin, round := time.Now(), uint64(0)
	for range 100 {
		work := g.stats.Shadow.TableWork.Load()
		invalidate(g)
		if g.shadows.Throttled(time.Now()) > 0 || g.stats.Shadow.ThrottleTime.Load() > 0 {
			break
		}
		settleRound(g)
		round = max(round, g.stats.Shadow.TableWork.Load()-work)
	}
	require.Greater(t, round, uint64(len(entries)/8*128), "each entry is translated")
	invalidate(g)
	require.False(t, g.Invalidated(), "it waits for its rate")
	require.Greater(t, g.stats.Shadow.TableWork.Load(), burst)
	require.LessOrEqual(t, g.stats.Shadow.TableWork.Load(), burst+2*round+uint64(rate*time.Since(begin).Seconds()))
	g.UnmapDMA(0, 1<<20) // returns
}

// TestTablesOverQuota: a directory names more tables than the guest's quota allows. Those that
// do not fit count as absent and are counted, until there is room for them.
func TestTablesOverQuota(t *testing.T) {
	const tablesAt, last = 0x300000, 63
	for _, scan := range []shadowpt.Scan{shadowpt.ScanFull, shadowpt.ScanIncremental} {
		a, f := newAgg(t, Options{})
		g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: scan}})
		bindChannel(t, g, 1)
		// Each table begins a page after the one before. Only the last has the page with the entry.
		writeEntry(t, g, tablesAt+last*shadowpt.SmallPage+shadowpt.SmallTableSize-8, shadowpt.PTE{Valid: true}.Encode())
		for i := range uint64(last + 1) {
			writeEntry(t, g, dirAt+i*8, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: tablesAt + i*shadowpt.SmallPage}}.Encode())
		}
		present := func() bool {
			invalidate(g)
			settleRound(g)
			at := directory(t, f, g, 1) + last*8
			return f.Bytes[at]|f.Bytes[at+4] != 0
		}
		require.Greater(t, (last+1)*uint64(shadowpt.SmallTableSize), 2*g.limits.Tables)
		require.False(t, present())
		over := g.stats.Shadow.TablesOverQuota.Load()
		require.NotZero(t, over)
		for i := range uint64(last) {
			writeEntry(t, g, dirAt+i*8, 0)
		}
		present() // its end makes room
		require.True(t, present(), "%v", scan)
		require.Equal(t, over, g.stats.Shadow.TablesOverQuota.Load())
	}
}
