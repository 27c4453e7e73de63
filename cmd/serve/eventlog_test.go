package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"os"
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
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
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

// TestProgramFaultsAreLogged: one line for all programs that were stopped since the last, with what
// the last one did.
func TestProgramFaultsAreLogged(t *testing.T) {
	var text bytes.Buffer
	guest := new(aggregator.Guest)
	e := &Endpoint{Name: "a", Device: &Device{shown: new(aperture.Stats), faults: guestFaults(guest)}, Virtual: &Virtual{Guest: guest}, logged: make(map[string]uint64)}
	log := slog.New(slog.NewTextHandler(&text, nil))
	e.logEvents(log)
	require.Empty(t, text.String())
	for _, what := range []string{"illegal instruction at 0x8", "misaligned address at 0x10"} {
		guest.Stats().FIFO.LastProgramFault.Store(&what)
		guest.Stats().FIFO.ProgramFaults.Add(1)
	}
	for range 2 {
		e.logEvents(log)
		require.Equal(t, 1, strings.Count(text.String(), "\n"))
		require.Contains(t, text.String(), `gpu=a count=2 total=2 last="misaligned address at 0x10"`)
	}

	c := newCard(t)
	what := "bad barrier at 0x8"
	c.Stats().LastProgramFault.Store(&what)
	c.Stats().ProgramFaults.Add(1)
	(&Endpoint{Name: "card", Device: NewPassThrough(c, passthrough.Config{}), logged: make(map[string]uint64)}).logEvents(log)
	require.Contains(t, text.String(), `gpu=card count=1 total=1 last="bad barrier at 0x8"`)
}

// TestUnmappedDMAIsLogged: a copy from memory that the client has unmapped, or never mapped, is one
// line with the bus address. One from mapped memory is none.
func TestUnmappedDMAIsLogged(t *testing.T) {
	for _, setup := range []string{"pass-through", "virtual"} {
		t.Run(setup, func(t *testing.T) {
			var text lockedBuffer
			log := slog.New(slog.NewTextHandler(&text, nil))
			var e *Endpoint
			var socket string
			if opts := (vfiouser.Options{Log: log}); setup == "virtual" {
				e = share(t, newCard(t), Native, opts, aggregator.Options{}).add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
				socket = e.Config.Socket
			} else {
				var err error
				e, err = NewEndpoint("a", NewPassThrough(newCard(t), passthrough.Config{}), Native, opts)
				require.NoError(t, err)
				socket = listen(t, e)
			}
			g, err := guest.Attach(t.Context(), socket, guest.Config{})
			require.NoError(t, err)
			defer g.Close()
			s, err := g.NewSpace()
			require.NoError(t, err)
			dst, err := g.AllocVRAM(4096)
			require.NoError(t, err)
			const dstVA, mapped, never = 1 << 24, 1 << 32, 1 << 33
			require.NoError(t, s.Map(dstVA, dst, guest.Small))
			require.NoError(t, g.Raw().Map(mapped, 0, 0x1000, client.ReadWrite))
			for i, c := range []struct {
				bus      uint64
				unmapped bool
			}{{mapped, false}, {mapped, true}, {never, true}} {
				if i == 1 { // as QEMU does
					require.NoError(t, g.Raw().Unmap(mapped, 2<<20))
				}
				va := uint64(2+i) << 24
				require.NoError(t, s.MapAddr(va, shadowpt.SystemCoherent, c.bus, 4096, guest.Small))
				ch, err := g.NewChannel(1+i, s)
				require.NoError(t, err)
				require.NoError(t, ch.Copy(guest.M2MF, dstVA, va+0x40, 64))
				require.Equal(t, c.unmapped, ch.Finish() != nil)
				e.logEvents(log)
				lines := strings.Count(text.String(), "does not share")
				require.Equal(t, i, lines, text.String())
				if c.unmapped {
					require.Contains(t, text.String(), fmt.Sprintf("gpu=a count=1 total=%d last=\"read at %#x\"\n", i, c.bus+0x40))
				}
			}
		})
	}
}

// TestRunawaysAreLogged: one line for all requests that were ended since the last, with the limit that
// the guest has.
func TestRunawaysAreLogged(t *testing.T) {
	var text lockedBuffer // the server polls, too
	log, cfg := slog.New(slog.NewTextHandler(&text, nil)), sched.Default()
	e := share(t, newCard(t), Native, vfiouser.Options{Log: log}, aggregator.Options{Scheduler: &cfg}).add(aggregator.GuestConfig{Name: "a", VRAM: testedVRAM})
	e.Virtual.Guest.Stats().Runaways.Add(2)
	for range 2 {
		e.logEvents(log)
		require.Equal(t, 1, strings.Count(text.String(), `level=WARN msg="a request ran longer than limits.request: its channel was ended" gpu=a limit=1m0s count=2 total=2`))
	}
	require.NoError(t, e.SetCardTime(sched.NodeConfig{Limit: 2 * time.Second}))
	e.Virtual.Guest.Stats().Runaways.Add(1)
	e.logEvents(log)
	require.Contains(t, text.String(), "limit=2s count=1 total=3")
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
	e, err := NewEndpoint("card", NewPassThrough(c, passthrough.Config{Map: aperture.MapAll}), Native, vfiouser.Options{MaxDMAMemory: 0x1000, Log: logger})
	require.NoError(t, err)
	h := attach(t, e)
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

	r := e.Report()
	require.Len(t, r.Inexact, 1)
	require.Equal(t, "pramin", r.Inexact[0].Window)
	require.EqualValues(t, 256, r.Counts["map_inexact_system_memory"])
	require.EqualValues(t, 1, r.RulesBroken[vfiouser.DMAMemory.String()])
	require.NotContains(t, r.Counts, "doorbells", "which the card counts")
}

// listen serves an endpoint until the test ends, and returns its socket.
func listen(t *testing.T, e *Endpoint) string {
	path := filepath.Join(t.TempDir(), "card")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Listen(ctx, e.Server, l) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-served, context.Canceled)
	})
	return path
}

// attach serves an endpoint until the test ends, and returns its client.
func attach(t *testing.T, e *Endpoint) *client.Client {
	h, err := client.Dial(listen(t, e), nil)
	require.NoError(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

// TestGPUAllocatesWithinItsBound: the GPU reaches pages that a client's file has, and allocates as many
// others as it may. The rest reads as nothing, and counts as a broken rule.
func TestGPUAllocatesWithinItsBound(t *testing.T) {
	const page = 0x1000
	e, err := NewEndpoint("card", NewPassThrough(newCard(t), passthrough.Config{}), Native, vfiouser.Options{MaxDMAAlloc: 2 * page})
	require.NoError(t, err)
	h := attach(t, e)
	m, err := client.Alloc(16 * page)
	require.NoError(t, err)
	defer m.Close()
	m.Data[8*page] = 0x55
	require.NoError(t, h.Map(0, m, 0, 16*page, client.ReadWrite))
	require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, 2<<24)) // PRAMIN shows system memory
	for i, want := range []uint32{0, 0, ^uint32(0), ^uint32(0), 8: 0x55} {
		if i > 3 && i != 8 {
			continue
		}
		got, err := h.Read32(vfiouser.RegionBAR0, 0x700000+uint64(i)*page)
		require.NoError(t, err)
		require.Equal(t, want, got, i)
	}
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(m.FD, &st))
	require.EqualValues(t, 3*page, st.Blocks*512)
	r := e.Report()
	require.EqualValues(t, 2, r.RulesBroken[vfiouser.DMAAlloc.String()])
}

// TestRefusedMemoryIsARule: ranges of a client's memory over a limit count as broken rules, and
// the log names them with the limit.
func TestRefusedMemoryIsARule(t *testing.T) {
	var log lockedBuffer
	opts := vfiouser.Options{MaxDMAMappings: 2, MaxDMARegions: 4, MaxDMAMemory: 0x5000, Log: slog.New(slog.NewTextHandler(&log, nil))}
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
	require.NoError(t, show(0, 0))
	for page := range uint64(3) {
		require.NoError(t, show(1, page), "one mapping of the whole file")
	}
	require.Error(t, show(1, 3))
	require.NoError(t, h.Unmap(0x1_2000, 0x1000))
	require.Error(t, show(2, 0))
	require.Error(t, show(2, 1))
	require.NoError(t, h.Unmap(0, 0x1000))
	require.Error(t, h.Map(0, files[0], 0, 0x3000, client.ReadWrite))
	other, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	defer other.Close()
	require.Error(t, h.Map(0, &client.Memory{FD: int(other.Fd())}, 0, 0x1000, client.Readable))
	r := v.Report()
	maps.DeleteFunc(r.RulesBroken, func(_ string, n uint64) bool { return n == 0 })
	require.Equal(t, map[string]uint64{"dma_mappings_refused": 2, "dma_regions_refused": 1, "dma_memory_refused": 1, "dma_files_refused": 1}, r.RulesBroken)
	for _, line := range []string{
		"gpu=a rule=dma_mappings_refused address=0x20000 size=0x1000 max=2", "gpu=a rule=dma_regions_refused address=0x13000 size=0x1000 max=4",
		"gpu=a rule=dma_memory_refused address=0x0 size=0x3000 max=20480", "gpu=a rule=dma_files_refused address=0x0 size=0x1000",
	} {
		require.Contains(t, log.String(), line)
	}
	require.EqualValues(t, 5, r.Connections.MemoryRefused)
}
