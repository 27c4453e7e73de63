package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func TestParseConsoleLine(t *testing.T) {
	l, ok := ParseConsoleLine("[    2.215079] cgroup: Unknown subsys name 'memory'\r\n")
	require.True(t, ok)
	require.Equal(t, LogLine{Level: LevelUnknown, Time: 2*time.Second + 215079*time.Microsecond, Text: "cgroup: Unknown subsys name 'memory'"}, l)
	l, ok = ParseConsoleLine("[12345.000001][   T42] nouveau 0000:00:01.0: fifo: [x] y")
	require.True(t, ok)
	require.Equal(t, "nouveau 0000:00:01.0: fifo: [x] y", l.Text)
	for _, s := range []string{"", "SeaBIOS (version 1.17)", "init: [    1.000000] x", "[    1.0] x", "[99999999999999999999.000000] x"} {
		_, ok := ParseConsoleLine(s)
		require.False(t, ok, s)
	}
}

func TestWarnings(t *testing.T) {
	log := []LogLine{
		{Level: LevelInfo, Text: "nouveau 0000:00:01.0: NVIDIA GF100 (0c0000a1)"},
		{Level: LevelErr, Text: "nouveau 0000:00:01.0: drm: failed to create ce channel, -22"},
		{Level: LevelWarning, Text: "WARNING: CPU: 0 at drivers/gpu/drm/nouveau/nvkm/core/client.c:1"},
		{Level: LevelWarning, Text: "ACPI: something"},
		{Level: LevelErr, Facility: 1, Text: "agent: nouveau is loaded"},
		{Level: LevelUnknown, Text: "nouveau: of the console"},
		{Level: LevelEmerg, Text: "NOUVEAU is on fire"},
	}
	require.Equal(t, []LogLine{log[1], log[2], log[6]}, Warnings(log, "nouveau"))
	require.Len(t, Warnings(log, ""), 4)
}

func TestFromRecord(t *testing.T) {
	l := fromRecord(proto.KmsgRecord{Level: 4, Facility: 3, USec: 1500000, Text: "x"})
	require.Equal(t, LogLine{Level: LevelWarning, Facility: 3, Time: 1500 * time.Millisecond, Text: "x"}, l)
	require.Equal(t, "[    1.500000] warning: x", l.String())
	require.Equal(t, "level(9)", Level(9).String())
	require.Equal(t, "unknown", LevelUnknown.String())
}
