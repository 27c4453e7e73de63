package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestDemmio: envytools' demmio reads each access of the mmiotrace form, at its register.
func TestDemmio(t *testing.T) {
	scale.ReleaseOnly(t)
	demmio, err := exec.LookPath(cmp.Or(os.Getenv("UMBRA_DEMMIO"), "demmio"))
	if err != nil {
		t.Skip("needs demmio of envytools, which Debian has no package of; set UMBRA_DEMMIO to one")
	}
	file := recordProbe(t, api.TraceRequest{GPU: "a"})
	var text bytes.Buffer
	require.NoError(t, open(t, file).Mmiotrace(&text, 0))
	name := filepath.Join(t.TempDir(), "a.mmt")
	require.NoError(t, os.WriteFile(name, text.Bytes(), 0o644))
	out, err := exec.CommandContext(t.Context(), demmio, "-c", "-f", name).Output()
	require.NoError(t, err)
	count := func(pattern string, in []byte) int { return len(regexp.MustCompile(pattern).FindAll(in, -1)) }
	for _, window := range []struct{ name, ours, theirs string }{
		{"registers and their windows", `(?m)^[RW] \d \S+ 1 `, `(?m)^\[0\] \S+ (MMIO|MEM)32 `},
		{"BAR1", `(?m)^[RW] \d \S+ 2 `, `(?m)^\[0\] \S+ FB32 `},
		{"BAR3", `(?m)^[RW] \d \S+ 4 `, `(?m)^\[0\] \S+ RAMIN32 `},
	} {
		n := count(window.ours, text.Bytes())
		require.NotZero(t, n, window.name)
		require.Equal(t, n, count(window.theirs, out), window.name)
	}
	require.Regexp(t, `MMIO32 R 0x000000 0x0c0000a3 PMC.ID => `, string(out))
	require.Regexp(t, `MMIO32 W 0x002270 0x[0-9a-f]{8} PFIFO`, string(out))
}

// TestPerfetto: Perfetto's own processor opens a time line without an error, and counts in it what the server counted.
func TestPerfetto(t *testing.T) {
	scale.ReleaseOnly(t)
	processor, err := exec.LookPath(cmp.Or(os.Getenv("UMBRA_TRACE_PROCESSOR"), "trace_processor_shell"))
	if err != nil {
		t.Skip("needs Perfetto's trace_processor_shell, which Debian has no package of; set UMBRA_TRACE_PROCESSOR to one")
	}
	recording, counted := recordProgram(t)
	var text bytes.Buffer
	require.NoError(t, open(t, recording).Perfetto(&text, "a"))
	dir := t.TempDir()
	timeline, query := filepath.Join(dir, "a.json"), filepath.Join(dir, "query.sql")
	require.NoError(t, os.WriteFile(timeline, text.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(query, []byte(`
		select
			(select count(*) from stats where severity = 'error' and value > 0) as errors,
			(select group_concat(name) from process where name is not null) as processes,
			count(*) filter (where track.name = 'traps') as traps,
			count(*) filter (where track.name = 'faults' and slice.name glob '*fault on engine*') as faults,
			count(*) filter (where track.name = 'interrupts' and slice.name glob 'interrupt high*') as interrupts,
			sum(slice.dur) filter (where track.name glob 'engine *') > 0 as worked
		from slice join thread_track on slice.track_id = thread_track.id join thread as track using (utid);`), 0o644))
	out, err := exec.CommandContext(t.Context(), processor, "-q", query, timeline).Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Equal(t, fmt.Sprintf(`0,"GPU a (gf100)",%d,%d,%d,1`, counted.Traps, counted.Counts["mmu_faults"], counted.Interrupts),
		lines[len(lines)-1], "%s", out)
}
