package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestRuleInterval: a guest that breaks a rule a thousand times a second causes one
// line of the log in each interval, with the count. The interval can be changed.
func TestRuleInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		guest := new(aggregator.Guest)
		endpoints := []*Endpoint{{Name: "a", Device: &Device{shown: &guest.Stats().Windows.Mapped}, Virtual: &Virtual{Guest: guest}, logged: make(map[string]uint64)}}
		s := NewEventLogger(slog.New(slog.NewTextHandler(&log, nil)), func() []*Endpoint { return endpoints })
		lines := 0
		// more breaks the rule for d and returns the number of new lines.
		more := func(d time.Duration) int {
			time.Sleep(time.Millisecond / 4) // never at the time of a poll
			for range d / time.Millisecond {
				guest.Stats().Windows.BadWindow.Add(1)
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			before := lines
			lines = strings.Count(log.String(), "guest broke a rule")
			return lines - before
		}
		require.Equal(t, 10, more(10*time.Second), "one a second by default")
		require.Contains(t, log.String(), "rule=bad_window count=1000 total=10000")
		s.Close()
	})
}

// TestInexactWindowsAreLogged: a line for each reason for which a mapped window is not exact, with
// the windows that are new for it. A client that attaches to BARs without tables is no reason.
func TestInexactWindowsAreLogged(t *testing.T) {
	var text bytes.Buffer
	log, mapped := slog.New(slog.NewTextHandler(&text, nil)), new(aperture.Stats)
	e := &Endpoint{Name: "a", Device: &Device{shown: mapped}, logged: make(map[string]uint64)}
	mapped.Physical.Add(aperture.BAR1, 1)
	e.logEvents(log)
	require.Empty(t, text.String())

	for _, step := range []struct {
		add  map[aperture.Kind]uint64
		line string
	}{
		{map[aperture.Kind]uint64{aperture.BAR1: 2}, ` gpu=a window=bar1 counter=map_inexact_aliases reason=.* consequence=.* count=2 total=2\n$`},
		{map[aperture.Kind]uint64{aperture.PRAMIN: 3}, ` window=pramin counter=map_inexact_aliases .* count=3 total=5\n$`},
		{map[aperture.Kind]uint64{aperture.PRAMIN: 1, aperture.BAR3: 1}, ` window=bar3,pramin counter=map_inexact_aliases .* count=2 total=7\n$`},
		{nil, `^$`},
	} {
		text.Reset()
		for window, n := range step.add {
			mapped.AliasesRefused.Add(window, n)
		}
		e.logEvents(log)
		require.Regexp(t, step.line, text.String())
	}
	var listed []string
	for _, x := range e.inexact() {
		require.NotEmpty(t, x.Reason)
		require.NotEmpty(t, x.Consequence)
		listed = append(listed, fmt.Sprint(x.Name, " ", x.Window, " ", x.Count))
	}
	require.Equal(t, []string{"map_inexact_aliases bar3 1", "map_inexact_aliases bar1 2", "map_inexact_aliases pramin 4"}, listed)
}

// openWindows requests a window for mapping, which opens all of them.
func openWindows(t *testing.T, h *client.Client) {
	t.Helper()
	info, err := h.RegionInfo(vfiouser.RegionBAR1)
	require.NoError(t, err)
	require.NoError(t, info.File.Close())
}

// TestBARsWithoutTables: BAR1 without page tables reads as zero and discards writes where it is
// mapped; trapped accesses reach VRAM.
func TestBARsWithoutTables(t *testing.T) {
	s := share(t, newCard(t), Native, vfiouser.Options{}, aggregator.Options{})
	v := s.add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM, Map: aperture.MapAll})
	h, err := client.Dial(v.Config.Socket, nil)
	require.NoError(t, err)
	defer h.Close()
	info, err := h.RegionInfo(vfiouser.RegionBAR1)
	require.NoError(t, err)
	defer info.File.Close()
	area := info.Areas[0]
	mem, err := unix.Mmap(int(info.File.Fd()), int64(area.Offset), 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NotZero(t, v.Virtual.Guest.Stats().Windows.Mapped.Physical.Load())

	require.NoError(t, h.Write32(vfiouser.RegionBAR1, area.Offset, 0x600d))
	trapped := func() uint32 {
		t.Helper()
		v, err := h.Read32(vfiouser.RegionBAR1, area.Offset)
		require.NoError(t, err)
		return v
	}
	require.EqualValues(t, 0x600d, trapped())
	require.Zero(t, binary.LittleEndian.Uint32(mem), "the guest reads zeros")
	binary.LittleEndian.PutUint32(mem, 0xbad)
	require.EqualValues(t, 0x600d, trapped(), "the write is lost")
}

// TestInexactWindowsOfAWholeCard: log, counts and report also name the inexact windows of a
// guest that has the whole card.
func TestInexactWindowsOfAWholeCard(t *testing.T) {
	c := newCard(t)
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	e, err := NewEndpoint("card", NewPassThrough(c, passthrough.Config{Map: aperture.MapAll}), Native, vfiouser.Options{MaxDMASize: 0x1000, Log: logger})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "card")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Listen(ctx, e.Server, l) }()
	defer func() {
		cancel()
		require.ErrorIs(t, <-served, context.Canceled)
	}()
	h, err := client.Dial(path, nil)
	require.NoError(t, err)
	defer h.Close()
	openWindows(t, h)
	require.EqualValues(t, 2, e.Device.shown.Physical.Load(), "BAR1 and BAR3")
	require.Empty(t, e.inexact())
	const systemMemory = 2 << 24 // of NV_PBUS_BAR0_WINDOW
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, systemMemory))
	_, err = h.Read32(vfiouser.RegionBAR0, window) // the write is done
	require.NoError(t, err)
	line := `msg="a mapped window is not exact" gpu=card window=pramin counter=map_inexact_system_memory reason="pages of it show system memory`
	e.logEvents(logger)
	require.Contains(t, log.String(), line)
	require.Equal(t, 1, strings.Count(log.String(), "is not exact"))
	m, err := client.Alloc(0x2000)
	require.NoError(t, err)
	defer m.Close()
	require.Error(t, h.Map(0, m, 0, 0x2000, client.ReadWrite))

	r, err := e.Report()
	require.NoError(t, err)
	require.Len(t, r.Inexact, 1)
	require.Equal(t, "pramin", r.Inexact[0].Window)
	require.EqualValues(t, 256, r.Counts["map_inexact_system_memory"])
	require.EqualValues(t, 1, r.RulesBroken[vfiouser.RuleDMASizes])
	require.NotContains(t, r.Counts, "doorbells", "which the card counts")
}

// TestRefusedMemoryIsARule: ranges of a client's memory over a limit count as broken rules, and
// the log names them with the limit.
func TestRefusedMemoryIsARule(t *testing.T) {
	var log lockedBuffer
	opts := vfiouser.Options{MaxDMAMappings: 2, MaxDMARegions: 5, MaxDMASize: 0x2000, Log: slog.New(slog.NewTextHandler(&log, nil))}
	v := share(t, newCard(t), Native, opts, aggregator.Options{}).add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
	h, err := client.Dial(v.Config.Socket, nil)
	require.NoError(t, err)
	defer h.Close()
	var files []*client.Memory
	for range 4 {
		m, err := client.Alloc(0x4000)
		require.NoError(t, err)
		defer m.Close()
		files = append(files, m)
	}
	show := func(file int, page uint64) error {
		return h.Map(uint64(file)<<16+page<<12, files[file], page<<12, 0x1000, client.ReadWrite)
	}
	for i := range files {
		for page := range uint64(2) {
			require.Equal(t, i >= 2, show(i, page) != nil)
		}
	}
	require.NoError(t, show(0, 2))
	require.Error(t, show(0, 3))
	require.Error(t, h.Map(0x10_0000, files[0], 0, 0x3000, client.ReadWrite))
	r, err := v.Report()
	require.NoError(t, err)
	maps.DeleteFunc(r.RulesBroken, func(_ string, n uint64) bool { return n == 0 })
	require.Equal(t, map[string]uint64{vfiouser.RuleDMAMappings: 4, vfiouser.RuleDMARegions: 1, vfiouser.RuleDMASizes: 1}, r.RulesBroken)
	require.Contains(t, log.String(), "gpu=a rule=dma_mappings_refused max=2")
	require.Contains(t, log.String(), "gpu=a rule=dma_regions_refused max=5")
	require.Contains(t, log.String(), "gpu=a rule=dma_sizes_refused size=0x3000 max=0x2000")
	require.EqualValues(t, 6, r.Connections.MemoryRefused)
}
