package trace

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// tool finds a program of others by a variable's path, or in the PATH.
func tool(t *testing.T, variable, name, lacks string) string {
	path, err := exec.LookPath(cmp.Or(os.Getenv(variable), name))
	if err != nil {
		t.Skipf("%s; set %s to one", lacks, variable)
	}
	return path
}

// TestPerfettoCounts: Perfetto's own processor finds as many events on the time line as were recorded.
func TestPerfettoCounts(t *testing.T) {
	scale.ReleaseOnly(t)
	shell := tool(t, "UMBRA_TRACE_PROCESSOR", "trace_processor_shell", "needs trace_processor_shell, which Debian's package perfetto (56.0) does not have")
	file := recordProbe(t, api.TraceRequest{GPU: "a"})
	stats, err := open(t, file).Stats("")
	require.NoError(t, err)
	dir := t.TempDir()
	var timeline bytes.Buffer
	require.NoError(t, open(t, file).Perfetto(&timeline, ""))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), timeline.Bytes(), 0o644))
	for query, want := range map[string]uint64{
		"select count(*) as n from slice where name glob 'read *'":                                                                                  stats.Kinds["read"],
		"select count(*) as n from slice where name glob 'write *'":                                                                                 stats.Kinds["write"],
		"select count(*) as n from slice join thread_track on track_id = thread_track.id join thread using (utid) where thread.name = 'interrupts'": stats.Kinds["interrupt"],
	} {
		sql := filepath.Join(dir, "query.sql")
		require.NoError(t, os.WriteFile(sql, []byte(query+";\n"), 0o644))
		out, err := exec.CommandContext(t.Context(), shell, "-q", sql, filepath.Join(dir, "a.json")).Output()
		require.NoError(t, err, query)
		lines := strings.Fields(string(out)) // a heading and the number
		got, err := strconv.ParseUint(lines[len(lines)-1], 10, 64)
		require.NoError(t, err, "%s: %s", query, out)
		require.Equal(t, want, got, query)
	}
}

// TestDemmio: envytools' demmio reads each access of the mmiotrace form, at its register.
func TestDemmio(t *testing.T) {
	scale.ReleaseOnly(t)
	demmio := tool(t, "UMBRA_DEMMIO", "demmio", "needs demmio of envytools, which Debian has no package of")
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
