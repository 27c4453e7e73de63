package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// TestTimesAreNoCounts: a time has a unit, and does not stand among the counts.
func TestTimesAreNoCounts(t *testing.T) {
	text := reportText(&serve.Report{GPUs: []serve.GPUReport{{
		Name: "a", Clients: serve.ClientCount{Served: 1},
		Counts: []aggregator.Count{{Name: "unmaps", N: 29}}, UnmapTime: 1234567 * time.Nanosecond,
	}}}, false)
	require.Regexp(t, `(?m)^  unmaps +29$`, text)
	require.Regexp(t, `(?m)^Until the card had let go of memory that the guest unmapped: 1.23ms in all$`, text)
	require.NotContains(t, text, "1234567")
	require.NotContains(t, reportText(&serve.Report{}, false), "let go")
}

// TestInexactWindowsAreInTheReport: it names the window and the reason, each reason once, and
// what comes of it.
func TestInexactWindowsAreInTheReport(t *testing.T) {
	for _, alone := range []bool{false, true} {
		text := reportText(&serve.Report{GPUs: []serve.GPUReport{{
			Name: theCard, Clients: serve.ClientCount{Served: 1}, Counts: []aggregator.Count{{Name: "map_scans", N: 3}},
			Inexact: []serve.Inexact{
				{Name: "map_inexact_pages", Window: "bar3", N: 2, Why: "too many", Then: "they are lost"},
				{Name: "map_inexact_pages", Window: "bar1", N: 40, Why: "too many", Then: "they are lost"},
			},
		}}}, alone)
		require.Contains(t, text, "\nMapped windows that were not exact\n"+
			"  count              window  times\n  map_inexact_pages  bar3    2\n  map_inexact_pages  bar1    40\n"+
			"  map_inexact_pages: too many; they are lost\n")
		require.Equal(t, !alone, strings.Contains(text, "GPU "+theCard))
		require.Equal(t, !alone, strings.Contains(text, "The card"))
	}
}

// TestWholeCardNamesInexactWindows: a guest that has the whole card has PRAMIN show its own
// memory, which cannot be mapped. The log, umbra gpu show and list, and the report say which
// window it is, why, and what the guest loses, as they do for a virtual GPU.
func TestWholeCardNamesInexactWindows(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, set := range []string{"pass-through", "virtual"} {
		t.Run(set, func(t *testing.T) {
			socket, at := filepath.Join(t.TempDir(), "a.sock"), filepath.Join(t.TempDir(), "control")
			name, args := theCard, []string{"serve", "--control", at, "--socket", socket, "--rule-interval", "10ms"}
			if set == "virtual" {
				name, args = "a", []string{"serve", "--control", at, "--gpu", "name=a,vram=64MiB,socket=" + socket, "--rule-interval", "10ms"}
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			code, out, log := make(chan int, 1), new(bytes.Buffer), new(bytes.Buffer)
			go func() { code <- doMain(ctx, args, out, log) }()
			k := api.NewClient(at)
			require.Eventually(t, func() bool {
				_, err := k.Status(ctx)
				return err == nil
			}, patience, time.Millisecond)
			h, err := client.Dial(socket, nil)
			require.NoError(t, err)
			defer h.Close()
			info, err := h.RegionInfo(vfiouser.RegionBAR1) // which opens the windows
			require.NoError(t, err)
			require.NoError(t, info.File.Close())
			const window, systemMemory = 0x001700, 2 << 24 // NV_PBUS_BAR0_WINDOW
			require.NoError(t, h.Write32(vfiouser.RegionBAR0, window, systemMemory))
			_, err = h.Read32(vfiouser.RegionBAR0, window) // the write is done
			require.NoError(t, err)

			show := new(bytes.Buffer)
			require.Equal(t, exitOK, doMain(ctx, []string{"gpu", "show", "--control", at, name}, show, new(bytes.Buffer)))
			text := `(?m)^Mapped windows that were not exact
  count +window +times
  map_inexact_system_memory +pramin +256
  map_inexact_system_memory: places of it show system memory, which cannot be mapped; the guest reads zeros there, and what it stores there is lost; an access that is trapped is exact, and slower: leave the window out of bar-map `
			require.Regexp(t, text, show.String())
			require.Regexp(t, `(?m)^  map_inexact_system_memory +256$`, show.String())
			shown, err := k.Show(ctx, name)
			require.NoError(t, err)
			s, err := k.Status(ctx)
			require.NoError(t, err)
			require.Equal(t, shown.Inexact, s.GPUs[0].Inexact)
			require.Len(t, shown.Inexact, 1)

			end()
			require.Equal(t, exitOK, <-code, log.String())
			require.Regexp(t, text, out.String())
			require.Contains(t, log.String(), `msg="a mapped window is not exact" gpu=`+name+` window=pramin count=map_inexact_system_memory why="places of it show system memory, which cannot be mapped" then="the guest reads zeros there`)
		})
	}
}
