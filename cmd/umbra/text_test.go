package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// TestGPUText: counts that are not zero and not usual, times with units, and each reason for inexact windows once.
func TestGPUText(t *testing.T) {
	var b strings.Builder
	gpuText(&b, &api.GPUReport{UnmapTime: 1234567 * time.Nanosecond, Work: []api.WorkCount{{Class: "90c0", Name: "FERMI_COMPUTE_A", Copies: 7}}, GPU: api.GPU{
		Counts:      map[string]uint64{"unmaps": 29, "scans": 0, "map_move_ns": 376293, "map_inexact_physical": 2},
		RulesBroken: map[string]uint64{"bad_window": 3},
		Inexact: []api.InexactWindow{
			{Name: "map_inexact_pages", Window: "bar3", Count: 1, Unit: "pages", Reason: "too many", Consequence: "they are lost"},
			{Name: "map_inexact_pages", Window: "bar1", Count: 40, Unit: "pages", Reason: "too many", Consequence: "they are lost"},
		},
	}})
	require.Equal(t, `
Copies, uploads and programs that engines started
  class  name             copies  bytes
  90c0   FERMI_COMPUTE_A  7       0

Counts of the guest
  name         count
  map_move_ns  376µs
  unmaps       29

Rules that the guest broke
  name        count
  bad_window  3

Mapped windows that were not exact
  counter            window  count
  map_inexact_pages  bar3    1 page
  map_inexact_pages  bar1    40 pages
  map_inexact_pages: too many; they are lost

Time until the card released memory that the client unmapped: 1.23ms
`, b.String())
}

// TestStatusFitsTerminal: four guests at work are shown in 80 columns and 24 lines, with the prompt.
func TestStatusFitsTerminal(t *testing.T) {
	busy := []api.EngineAccount{{Account: sched.Account{Busy: 100 * time.Hour, Wait: 100 * time.Hour, Requests: 1e7, Held: 1e7}}}
	s := api.Status{Version: "v1.0.0-100-g0123456", PID: 1 << 22, Setup: api.SetupVirtual, Uptime: 100 * time.Hour,
		Card: api.Card{Kind: "soft", VRAM: 6 << 30, Bytes: 1e11, Interrupts: 1e6, VRAMRoom: 1000 << 20, VRAMFree: 1000 << 20, ChannelsFree: 100, Policy: "timeslice",
			Ledger: &api.LedgerNode{Engines: busy, Children: make([]api.LedgerNode, 20)}}}
	for i := range 4 {
		s.GPUs = append(s.GPUs, api.GPU{
			Name: fmt.Sprint("vm", i), Chip: "gh100", VRAM: 1000 << 20, Channels: 128, Attached: true, Traps: 1e7, Interrupts: 1e7, Socket: "/run/umbra/guest.sock",
			Share: &api.Share{Weight: 1000, Cap: 25, Priority: 7}, CardTime: &api.LedgerNode{Engines: busy},
			Faults: 100002, Counts: map[string]uint64{"runaways": 2},
		})
	}
	var b strings.Builder
	statusText(&b, &s)
	lines := strings.Split(b.String(), "\n")
	require.LessOrEqual(t, len(lines), 24)
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 80, line)
	}
	require.Contains(t, strings.Join(lines, "\n"), " 100002 ", "faults")
	require.Contains(t, strings.Join(lines, "\n"), " gh100 ")
}

// TestProgramText: the status has a line of programs where guests launched some, or where nothing can compile them.
func TestProgramText(t *testing.T) {
	text := func(c api.Card) string {
		var b strings.Builder
		programText(&b, &c)
		return b.String()
	}
	require.Empty(t, text(api.Card{}), "a card of the host's driver")
	require.Empty(t, text(api.Card{Programs: new(api.ProgramCounts)}))
	require.Contains(t, text(api.Card{Interpreted: "no umbra-jit"}), "interpreted, which is slower: no umbra-jit")
	require.Contains(t, text(api.Card{Programs: &api.ProgramCounts{Launches: 3}}), "3 launches, none compiled")
	require.Contains(t, text(api.Card{Programs: &api.ProgramCounts{Launches: 3, Compiled: 1}}), "1 program compiled")
}

// TestLedgerText: the account of card time is a tree, and a part is of the line above it.
func TestLedgerText(t *testing.T) {
	busy := func(d time.Duration) []api.EngineAccount {
		return []api.EngineAccount{{Engine: "graphics", Account: sched.Account{Busy: d, Requests: 1}}}
	}
	var b strings.Builder
	ledgerText(&b, &api.LedgerNode{Kind: "card", Name: "card", Engines: busy(4 * time.Second), Children: []api.LedgerNode{
		{Kind: "guest", Name: "a", Weight: 300, Engines: busy(3 * time.Second), Ended: busy(time.Second), OnCard: 1, Waiting: 2},
		{Kind: "guest", Name: "b", Weight: 100, Engines: busy(time.Second), Blocked: "quarantined", Waiting: 2},
	}})
	require.Equal(t, `
Card time in detail; a part is of the line above it
  who          weight  part    graphics  waited  requests  entries  held  overrun  now
  card                         4s        0s      1         0        0     0s
    a          300     75.0 %  3s        0s      1         0        0     0s  1 on the card, 2 wait
      (ended)          33.3 %  1s        0s      1         0        0     0s
    b          100     25.0 %  1s        0s      1         0        0     0s  quarantined
`, b.String())
}

// TestPassThroughCounts: the guest that has the whole card is shown with the card's faults, the
// programs that it stopped and the bytes that its engines moved, in the status and in the report.
func TestPassThroughCounts(t *testing.T) {
	o := config.Default()
	o.Socket = filepath.Join(t.TempDir(), "card")
	require.NoError(t, o.Check())
	plan, err := serve.NewPlan(o, true, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s, err := plan.Start(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	stats := s.Card.Stats()
	stats.MMUFaults.Add(1)
	stats.PBDMAErrors.Add(2)
	stats.EngineErrors.Add(4)
	stats.BARFaults.Add(8)
	for range 16 {
		stats.NoteProgram("bad barrier")
	}
	class := engine.Classes()[0].ID
	stats.Engine.Class(class).Methods.Add(1)
	stats.Engine.Class(class).Bytes.Add(4096)

	status, err := s.Status()
	require.NoError(t, err)
	report, err := s.Report()
	require.NoError(t, err)
	for _, g := range []*api.GPU{&status.GPUs[0], &report.GPUs[0].GPU} {
		require.EqualValues(t, 4096, g.Bytes)
		require.EqualValues(t, 16, g.Count("program_faults"))
		var b strings.Builder
		gpuTable(&b, []api.GPU{*g}, true)
		require.Regexp(t, `\n  card +gf100 +512MiB +all +- +0 +0 +15 +0 `, b.String())
	}
	require.EqualValues(t, 15, status.Card.Faults.Total())
}
