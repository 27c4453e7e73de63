package nouveau

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab"
)

func TestOf(t *testing.T) {
	for chip, versions := range map[string][]string{"": lab.Kernels, lab.ChipGH100: lab.KernelsGH100} {
		for _, v := range versions {
			for _, release := range []string{v, v + ".3+deb13-amd64"} {
				k, ok := Of(chip, release)
				require.True(t, ok, release)
				require.Equal(t, chip, k.Chip)
				require.Equal(t, v, k.Version)
			}
		}
	}
	k, ok := Of("", "6.19.0")
	require.False(t, ok, "6.1 is not 6.19")
	require.Equal(t, "6.19.0", k.Version)
}

func TestProblems(t *testing.T) {
	line := func(level int, text string) lab.LogLine { return lab.LogLine{Level: level, Text: text} }
	failed, format := line(lab.LevelErr, "nouveau 0000:00:01.0: drm: "+ErrorLine), line(lab.LevelWarning, "nouveau 0000:00:01.0: "+CoreLine)
	using := line(lab.LevelInfo, "nouveau 0000:00:01.0: drm: MM: using M2MF for buffer copies")
	log := []lab.LogLine{failed, using, format}

	k, _ := Of("", "6.12")
	require.Empty(t, k.Problems(log, 1))
	require.Len(t, k.Problems(log, 2), 2)
	require.Empty(t, k.Problems(slices.Concat(log, log), 2))
	require.Len(t, k.Problems(nil, 1), 2)
	other := append(slices.Clone(log), line(lab.LevelWarning, "nouveau 0000:00:01.0: fifo: something new"))
	require.Contains(t, k.Problems(other, 1)[0], "something new")
	require.Equal(t, []string{"M2MF"}, Movers(log))

	old, _ := Of("", "6.1")
	require.Empty(t, old.Problems([]lab.LogLine{using}, 1))
	require.Len(t, old.Problems(log, 1), 2)
}
