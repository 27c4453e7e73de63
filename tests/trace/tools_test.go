package trace

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
