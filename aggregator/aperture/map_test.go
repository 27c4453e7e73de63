package aperture

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseMap(t *testing.T) {
	for text, want := range map[string]Map{
		"none": MapNone, "all": MapAll, "bar1": MapBAR1, "rom, bar3": MapROM | MapBAR3, "bar1,bar3,pramin,rom": MapAll,
	} {
		m, err := ParseMap(text)
		require.NoError(t, err, text)
		require.Equal(t, want, m, text)
	}
	for text, want := range map[string]string{
		"":               `"" cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom`,
		"bar1,none":      `none and all stand alone; say one of them, or any of bar1, bar3, pramin, rom`,
		"all,rom":        `none and all stand alone; say one of them, or any of bar1, bar3, pramin, rom`,
		"rom,bar1, bar1": `bar1 is there twice; say it once`,
		"bar2":           `"bar2" cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom`,
	} {
		_, err := ParseMap(text)
		require.EqualError(t, err, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := Map(rapid.Uint8Range(0, uint8(MapAll)).Draw(t, "map"))
		got, err := ParseMap(m.String())
		require.NoError(t, err)
		require.Equal(t, m, got)
	})
}
