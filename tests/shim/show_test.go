package shim

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func recorded(t *testing.T, name string) *Recording {
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	r, err := ReadRecording(bytes.NewReader(data))
	require.NoError(t, err)
	return r
}

func shown(t *testing.T, r *Recording, methods bool) string {
	var text strings.Builder
	require.NoError(t, Show(&text, r, methods))
	return text.String()
}

// TestShow: a recording is explained by its launches and their programs; of one that failed, the instruction too.
func TestShow(t *testing.T) {
	r := recorded(t, "loop-25.rec")
	text := shown(t, r, false)
	require.Regexp(t, `launch of \[8 1 1\] blocks of \[32 1 1\] threads with \d+ registers, 0 bytes shared by a block: the program at 0x`, text)
	require.Regexp(t, `(?m)^    0x[0-9a-f]+  8000000000001de7  exit$`, text)
	require.NotContains(t, text, "FERMI_COMPUTE_A.")
	require.Contains(t, shown(t, r, true), "FERMI_COMPUTE_A.LAUNCH = ")

	// The same with an exit that is no instruction.
	exit := []byte{0xe7, 0x1d, 0, 0, 0, 0, 0, 0x80}
	for _, s := range r.Steps {
		for _, w := range s.Wrote {
			copy(w.Data, bytes.ReplaceAll(w.Data, exit, make([]byte, 8)))
		}
	}
	m := machine(t, Config{})
	p := player{machine: m, image: newImage(m)}
	for i := range r.Steps {
		if err := p.step(&r.Steps[i]); err != nil && strings.Contains(err.Error(), "illegal instruction") {
			r.Steps[i].Failed, r.Steps = err.Error(), r.Steps[:i+1]
			break
		}
	}
	require.NotEmpty(t, r.Steps[len(r.Steps)-1].Failed)
	require.NoError(t, Replay(machine(t, Config{}), r), "it fails as recorded")
	text = shown(t, r, false)
	require.Regexp(t, `(?m)^    (0x[0-9a-f]+)  0000000000000000  is no instruction\n    \^{9}  illegal instruction at 0x[0-9a-f]+ `, text)
	require.Contains(t, text, "FERMI_COMPUTE_A.LAUNCH = ", "methods of the submission that fails")
	require.Contains(t, text, "fails here: illegal instruction at ")

	m = machine(t, Config{})
	r.Steps[len(r.Steps)-1].Failed = "no page"
	require.ErrorContains(t, Replay(m, r), "illegal instruction")
	require.Contains(t, shown(t, r, false), "failed when it was recorded: no page")
}
