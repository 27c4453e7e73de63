package serve

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestRuleInterval: a guest that breaks a rule a thousand times a second causes one
// line of the log in each interval, with the count.
func TestRuleInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		guest := new(aggregator.Guest)
		e := &Endpoint{Name: "a", Device: &Device{shown: new(aperture.Stats)}, Virtual: &Virtual{Guest: guest}, logged: make(map[string]uint64)}
		stop := logEvents(log.logger(), func() []*Endpoint { return []*Endpoint{e} })
		time.Sleep(time.Millisecond / 4) // never at the time of a poll
		for range 10 * time.Second / time.Millisecond {
			guest.Stats().Windows.BadWindow.Add(1)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.Equal(t, 10, strings.Count(log.String(), "guest broke a rule"))
		require.Contains(t, log.String(), "rule=bad_window count=1000 total=10000")
		stop()
	})
}

// TestClientsAreCounted: of clients that come and go between two polls, some have lines, and the others one with their count. One
// that stays has a line.
func TestClientsAreCounted(t *testing.T) {
	var log lockedBuffer
	e := wholeCard(t, passthrough.Config{}, vfiouser.Options{Log: log.logger()})
	const more = 20
	for range maxClientLines + more {
		leave(t, e, dial(t, e))
	}
	stays := dial(t, e)
	read32(t, stays, vfiouser.RegionBAR0, window)
	count := func(msg string) int { return strings.Count(log.String(), msg) }
	require.Equal(t, maxClientLines, count("client attached"))
	for range 2 {
		e.logEvents(log.logger())
		require.Equal(t, maxClientLines+1, count("client attached"))
		require.Equal(t, 1, count(`msg="more clients attached and detached than are logged" gpu=card count=20 total=20`))
	}
	leave(t, e, stays)
	leave(t, e, dial(t, e))
	require.Eventually(t, func() bool { return count("client detached") == maxClientLines+2 }, patience, time.Millisecond)
	require.Equal(t, maxClientLines+2, count("client attached"))
}

// TestEventsAreLogged: a line for what is new since the last poll, and none if nothing is.
func TestEventsAreLogged(t *testing.T) {
	var log lockedBuffer // the server polls, too
	cfg := sched.Default()
	s := share(t, newCard(t), Native, vfiouser.Options{Log: log.logger()}, aggregator.Options{Scheduler: &cfg})
	e := s.add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
	stats := e.Virtual.Guest.Stats()
	mapped, fifo := &stats.Windows.Mapped, &stats.Channels
	const inexact = `^level=WARN msg="a mapped window is not exact" gpu=a `
	for _, step := range []struct {
		event func()
		lines string
	}{
		{func() {}, `^$`},
		{func() { mapped.Physical.Add(aperture.BAR1, 1) }, `^$`}, // as each client that attaches
		{func() {
			stats.Channels.Stopped.Note(3, card.Fault{Kind: card.Translation, Engine: card.Copy0, VA: 0x5000, Write: true, Reason: shadowpt.PageReadOnly})
			stats.Channels.Stopped.Note(4, card.Fault{Kind: card.ProgramError, Text: "misaligned address at 0x10"})
		}, `^level=WARN msg="the card stopped a channel" gpu=a channel=3 engine="copy 0" reason="write of 0x5000, a read-only page"\n` +
			`level=WARN msg="the card stopped a channel" gpu=a channel=4 engine=graphics reason="an error of a program: misaligned address at 0x10"\n$`},
		{func() {
			for range 20 {
				stats.Channels.Stopped.Note(5, card.Fault{Kind: card.BadHeader, Engine: card.NoEngine})
			}
		}, `^level=WARN msg="the card stopped channels more often than is logged" gpu=a count=4\n(.* channel=5 engine=none reason="an illegal command header"\n){16}$`},
		{func() { fifo.UnmappedDMA.Note(0x40, true) }, `^level=WARN .* its client does not share" gpu=a count=1 total=1 last="write at 0x40"\n$`},
		{func() { stats.Runaways.Add(3) }, `^level=WARN msg="a request ran longer than limits.request: its channel was ended" gpu=a limit=1m0s count=3 total=3\n$`},
		{func() {
			require.NoError(t, e.Virtual.Guest.SetShare(sched.NodeConfig{Limit: 2 * time.Second}))
			stats.Runaways.Add(1)
		}, ` limit=2s count=1 total=4\n$`},
		{func() { stats.Quarantines.Add(1) }, `^level=WARN msg="guest was quarantined" gpu=a count=1 total=1 reason="released since"\n$`},
		{func() { stats.ScrubFailures.Add(1) }, `^level=ERROR .* could not be cleared; .*" gpu=a count=1 total=1\n$`},
		{func() { mapped.AliasesRefused.Add(aperture.BAR1, 2) }, inexact + `window=bar1 counter=map_inexact_aliases reason=.* consequence=.* count=2 total=2\n$`},
		{func() {
			mapped.AliasesRefused.Add(aperture.PRAMIN, 4)
			mapped.AliasesRefused.Add(aperture.BAR3, 1)
		}, inexact + `window=bar3 .* count=1 total=1\n.* window=pramin counter=map_inexact_aliases .* count=4 total=4\n$`},
	} {
		before := len(log.String())
		step.event()
		for range 2 {
			e.logEvents(log.logger())
			require.Regexp(t, step.lines, log.String()[before:])
		}
	}
	var listed []string
	for _, x := range e.inexact() {
		require.NotEmpty(t, x.Reason)
		require.NotEmpty(t, x.Consequence)
		listed = append(listed, fmt.Sprint(x.Name, " ", x.Window, " ", x.Count))
	}
	require.Equal(t, []string{"map_inexact_aliases bar3 1", "map_inexact_aliases bar1 2", "map_inexact_aliases pramin 4"}, listed)

	c := newCard(t)
	what := "bad barrier at 0x8"
	c.Stats().LastProgramFault.Store(&what)
	c.Stats().ProgramFaults.Add(1)
	(&Endpoint{Name: "card", Device: NewPassThrough(c, passthrough.Config{}), logged: make(map[string]uint64)}).logEvents(log.logger())
	require.Contains(t, log.String(), `gpu=card count=1 total=1 last="bad barrier at 0x8"`)
}

// TestBARsWithoutTables: BAR1 without page tables reads as zero and discards writes where it is
// mapped; trapped accesses reach VRAM.
func TestBARsWithoutTables(t *testing.T) {
	v := share(t, newCard(t), Native, vfiouser.Options{}, aggregator.Options{}).add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM, Map: aperture.MapAll})
	h := dial(t, v)
	info, err := h.RegionInfo(vfiouser.RegionBAR1)
	require.NoError(t, err)
	defer info.File.Close()
	mem, err := info.Mmap(info.Areas[0])
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NotZero(t, v.Virtual.Guest.Stats().Windows.Mapped.Physical.Load())

	at := info.Areas[0].Offset
	require.NoError(t, h.Write32(vfiouser.RegionBAR1, at, 0x600d))
	require.EqualValues(t, 0x600d, read32(t, h, vfiouser.RegionBAR1, at))
	require.Zero(t, binary.LittleEndian.Uint32(mem), "the guest reads zeros")
	binary.LittleEndian.PutUint32(mem, 0xbad)
	require.EqualValues(t, 0x600d, read32(t, h, vfiouser.RegionBAR1, at), "the write is lost")
}

// wholeCard serves a card to one guest until the test ends.
func wholeCard(t *testing.T, windows passthrough.Config, opts vfiouser.Options) *Endpoint {
	e, err := NewEndpoint("card", NewPassThrough(newCard(t), windows), Native, opts)
	require.NoError(t, err)
	e.Config.Socket = filepath.Join(t.TempDir(), "card")
	require.NoError(t, e.serve(nil))
	t.Cleanup(func() { require.False(t, e.stop()) })
	return e
}

const systemMemory = 2 << 24 // of NV_PBUS_BAR0_WINDOW: PRAMIN shows it

// TestInexactWindowsOfAWholeCard: log, counts and report also name the inexact windows of a
// guest that has the whole card, and memory beyond a limit.
func TestInexactWindowsOfAWholeCard(t *testing.T) {
	var log lockedBuffer
	e := wholeCard(t, passthrough.Config{Map: aperture.MapAll}, vfiouser.Options{MaxDMAMemory: 0x1000, Log: log.logger()})
	h := dial(t, e)
	info, err := h.RegionInfo(vfiouser.RegionBAR1) // which opens all windows
	require.NoError(t, err)
	require.NoError(t, info.File.Close())
	require.EqualValues(t, 2, e.Device.shown.Physical.Load(), "BAR1 and BAR3")
	require.Empty(t, e.inexact())
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, systemMemory))
	read32(t, h, vfiouser.RegionBAR0, window) // the write is done
	e.logEvents(log.logger())
	require.Contains(t, log.String(), `gpu=card window=pramin counter=map_inexact_system_memory reason="pages of it show system memory`)
	require.Equal(t, 1, strings.Count(log.String(), "is not exact"))
	m, err := client.Alloc(0x2000)
	require.NoError(t, err)
	defer m.Close()
	require.Error(t, h.Map(0, m, 0, 0x2000, client.ReadWrite))
	require.Contains(t, log.String(), "gpu=card rule=dma_memory_refused address=0x0 size=0x2000 max=4096")

	r := e.Report()
	require.Len(t, r.Inexact, 1)
	require.Equal(t, "pramin", r.Inexact[0].Window)
	require.EqualValues(t, 256, r.Counts["map_inexact_system_memory"])
	require.EqualValues(t, 1, r.RulesBroken[vfiouser.DMAMemory.String()])
	require.EqualValues(t, 1, r.Connections.MemoryRefused)
	require.NotContains(t, r.Counts, "doorbells", "which the card counts")
}

// TestGPUAllocatesWithinItsBound: the GPU reaches pages that a client's file has, and allocates as many
// others as it may. The rest reads as nothing, and counts as a broken rule. So does memory that the
// client does not share, which is logged.
func TestGPUAllocatesWithinItsBound(t *testing.T) {
	const page = 0x1000
	e := wholeCard(t, passthrough.Config{}, vfiouser.Options{MaxDMAAlloc: 2 * page})
	h := dial(t, e)
	m, err := client.Alloc(16 * page)
	require.NoError(t, err)
	defer m.Close()
	m.Data[8*page] = 0x55
	require.NoError(t, h.Map(0, m, 0, 16*page, client.ReadWrite))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, systemMemory))
	const nothing = ^uint32(0)
	for _, at := range []struct {
		page uint64
		want uint32
	}{{0, 0}, {1, 0}, {2, nothing}, {3, nothing}, {8, 0x55}, {16, nothing}} {
		require.Equal(t, at.want, read32(t, h, vfiouser.RegionBAR0, pramin+at.page*page), at)
	}
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD, &st))
	require.EqualValues(t, 3*page, st.Blocks*512)
	r := e.Report()
	require.EqualValues(t, 2, r.RulesBroken[vfiouser.DMAAlloc.String()])
	var log lockedBuffer
	e.logEvents(log.logger())
	require.Contains(t, log.String(), `gpu=card count=1 total=1 last="read at 0x10000"`)
}

// logger logs to the buffer, without the time.
func (b *lockedBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}}))
}
